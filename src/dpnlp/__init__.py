"""Differentially private natural language processing."""
