"""Evaluation: suites, rules and scores."""
