"""The sides of bench/train_vs_trl.py, each a process: rows, ours, theirs, reference."""
