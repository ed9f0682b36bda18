"""What is learned: a loss for the engine, and what is done with the model afterwards. One task per file."""
