"""hashtune: rebuild any fine-tuned adapter from Git and data hashes."""
