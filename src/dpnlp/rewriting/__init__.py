"""Text to text under local differential privacy: one method per file, and what one costs a person."""
