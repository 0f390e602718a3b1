"""Has moved to `learner.networks.fit`."""

from learner.networks.fit import require_fit

__all__ = ["require_fit"]
