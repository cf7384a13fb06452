"""The kinds of rule that an answer can be checked by, grouped by what they look at."""
