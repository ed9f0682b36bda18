"""What the demonstration shows its work on: sentences of an invented clinic, and a small public model to start from."""
