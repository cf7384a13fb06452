"""Base models by content hash: manifest, sources, loader."""
