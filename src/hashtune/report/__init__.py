"""Runs as a page: verdict, curves, gains, answers side by side, lineage."""
