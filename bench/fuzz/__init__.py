"""What bench/fuzz_data.py feeds to the data path, and what must come out of it."""
