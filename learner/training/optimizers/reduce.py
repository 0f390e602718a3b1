"""Combines numbers of several learners of the same behavior; with one learner, nothing happens."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Reduce(Protocol):
    """Combines numbers over all learners. Every learner calls the same methods in the same order, within an update.

    All learners get the same result, bit for bit.

    Attributes:
        rank: Number of this learner, from 0.
        ranks: Number of learners.
        has_rows: Whether the rows of this learner count. A learner without rows for an update or a minibatch takes part
            with others in their place, and sets this to False.
        wait_seconds: Seconds in which this learner has waited for the others so far.
    """

    rank: int
    ranks: int
    has_rows: bool
    wait_seconds: float

    def gradients(self, gradient: Tensor, rows: int = 1, beside: Tensor | None = None) -> Tensor | None:
        """Replaces a gradient ``[P]``, a mean over rows, by the mean over the rows of all learners.

        Args:
            gradient: The gradient; changed in place.
            rows: Number of its rows.
            beside: A few numbers whose sums over the learners are needed, too.

        Returns:
            Sums of ``beside`` over the learners; None without it.
        """

    def sums(self, values: Tensor) -> Tensor:
        """Returns the sum over the learners (moments of advantages, counters)."""

    def moments(self, batch: Tensor) -> Tensor:
        """Merges batch moments ``[3, size]`` (see `learner.training.networks.normalizer.batch_moments`) over the learners."""

    def gather(self, values: Tensor) -> Tensor:
        """Returns the values of each learner, ``[ranks, *shape]``, whether or not its rows count."""

    def broadcast(self, content: bytes) -> bytes:
        """Returns the content that learner 0 has; that of the others is ignored."""


class SingleLearner:
    """`Reduce` for one learner: the identity."""

    def __init__(self) -> None:
        self.rank = 0
        self.ranks = 1
        self.has_rows = True
        self.wait_seconds = 0.0

    def gradients(self, gradient: Tensor, rows: int = 1, beside: Tensor | None = None) -> Tensor | None:
        """Leaves the gradient unchanged, and returns the numbers."""
        del gradient, rows
        return beside

    def sums(self, values: Tensor) -> Tensor:
        """Returns the values."""
        return values

    def moments(self, batch: Tensor) -> Tensor:
        """Returns the moments."""
        return batch

    def gather(self, values: Tensor) -> Tensor:
        """Returns the values of this learner, ``[1, *shape]``."""
        return values.unsqueeze(0)

    def broadcast(self, content: bytes) -> bytes:
        """Returns the content."""
        return content
