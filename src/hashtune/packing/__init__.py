"""The packing plan: rows, documents, optimizer steps."""
