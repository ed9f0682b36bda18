"""Property-based tests draw the same examples everywhere, so that a failure is seen by everyone or by nobody."""

from hypothesis import settings

settings.register_profile("dpnlp", deadline=None, derandomize=True)
settings.load_profile("dpnlp")
