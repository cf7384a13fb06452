"""One thin module per DVC stage, same name."""
