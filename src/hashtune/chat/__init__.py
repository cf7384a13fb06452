"""Chat templates, bodies (what is trained) and their proof."""
