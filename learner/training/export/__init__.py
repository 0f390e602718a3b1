"""Stops 10 and 11 of a step's path: from parameters to policy versions, and from versions to every actor."""
