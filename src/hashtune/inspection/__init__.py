"""Examples, rows and steps as a person reads them: which tokens, and which of them are trained."""
