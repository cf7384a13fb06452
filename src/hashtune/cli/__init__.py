"""The `hashtune` command: main.py dispatches, one module per subcommand."""
