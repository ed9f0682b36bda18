"""Texts, pairs, tags and graphs as examples that the engine can ask for by number."""
