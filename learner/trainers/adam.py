"""Has moved to `learner.optimizers.adam`."""

from learner.optimizers.adam import FlatAdam, Snapshot

__all__ = ["FlatAdam", "Snapshot"]
