"""Stops 1 and 2 of a step's path: turns environment steps into segments, and segments into chunks."""
