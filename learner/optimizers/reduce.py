"""Combines numbers of several learners of the same behavior; with one learner, nothing happens."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Reduce(Protocol):
    """Combines numbers over all learners. Every learner calls the same methods in the same order."""

    def gradients(self, gradient: Tensor) -> None:
        """Replaces a gradient ``[P]`` by its mean over the learners."""

    def sums(self, values: Tensor) -> Tensor:
        """Returns the sum over the learners (moments of advantages, counters)."""

    def moments(self, batch: Tensor) -> Tensor:
        """Merges batch moments ``[3, size]`` (see `learner.networks.normalizer.batch_moments`) over the learners."""

    def all_agree(self, vote: bool) -> bool:
        """Returns whether every learner votes yes (ready to update)."""

    def any_agrees(self, vote: bool) -> bool:
        """Returns whether any learner votes yes (stop)."""


class SingleLearner:
    """`Reduce` for one learner: the identity."""

    def gradients(self, gradient: Tensor) -> None:
        """Does nothing."""

    def sums(self, values: Tensor) -> Tensor:
        """Returns the values."""
        return values

    def moments(self, batch: Tensor) -> Tensor:
        """Returns the moments."""
        return batch

    def all_agree(self, vote: bool) -> bool:
        """Returns the vote."""
        return vote

    def any_agrees(self, vote: bool) -> bool:
        """Returns the vote."""
        return vote
