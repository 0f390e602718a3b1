"""Stops 1 and 2: environment steps become segments, segments become chunks."""
