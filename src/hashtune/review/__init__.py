"""What a pull request changes, in words: spec, stages, figures, data."""
