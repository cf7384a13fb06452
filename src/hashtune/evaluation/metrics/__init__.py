"""Task metrics: an answer and its reference become a score in [0, 1], without a judge model."""
