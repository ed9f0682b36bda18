"""The private engine: sampling, clipping, noise, the plan, the step and the loop."""
