"""Attacks that try to break a promise, to see whether it holds."""
