"""Conversations: readers, schemas, cleaning, split, leakage, mixture."""
