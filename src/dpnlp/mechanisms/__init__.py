"""Noise on one answer: the mechanisms of the lectures, sampled so that no floating-point attack sees through them."""
