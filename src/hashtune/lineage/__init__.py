"""What an adapter is made of: code hashes, registry entry, model card."""
