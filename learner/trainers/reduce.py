"""Has moved to `learner.optimizers.reduce`."""

from learner.optimizers.reduce import Reduce, SingleLearner

__all__ = ["Reduce", "SingleLearner"]
