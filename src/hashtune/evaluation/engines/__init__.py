"""What answers: engines behind one interface, chosen by `evaluation.engine` for both models."""
