"""Architectures, one file each, built from `layers`."""
