"""What training a behavior takes, as the trainers' side judges a declaration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that training a behavior takes from the start, in bytes.

    Attributes:
        ring_rows: of its ring, or of its replay memory.
        row_bytes: of each.
        policy_bytes: parameters of the policy, as actors get them.
        network_bytes: policy, critics and targets, with all that an optimizer keeps of them.
        batch_bytes: a minibatch (each part of it, if it is computed in parts), and what its loss keeps for the backward
            pass.
        signal_bytes: of the networks of reward signals, and what their losses of a minibatch keep.
        replays: whether the rows are those of a replay memory.
    """

    ring_rows: int
    row_bytes: int
    policy_bytes: int = 0
    network_bytes: int = 0
    batch_bytes: int = 0
    signal_bytes: int = 0
    replays: bool = False

    @property
    def total_bytes(self) -> int:
        """Ring or replay memory, networks, a minibatch and reward signals."""
        return self.ring_rows * self.row_bytes + self.network_bytes + self.batch_bytes + self.signal_bytes
