"""Published peak-memory measurements, the systems that made them, and the scoring of a plan."""
