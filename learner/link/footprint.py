"""Messages that ask and answer how much memory training a declared behavior requires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollcast.specs import BehaviorSpec

from learner.shared.settings.trainer import TrainerSettings


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that training a behavior requires from the start, in bytes.

    Attributes:
        ring_rows: Rows of its ring, or of its replay memory.
        row_bytes: Bytes of one row.
        policy_bytes: Parameters of the policy, as sent to actors.
        network_bytes: Policy, critics and targets, with the state of their optimizers.
        batch_bytes: A minibatch (or one part of it, if it is computed in parts) and the tensors that its loss keeps for
            the backward pass.
        signal_bytes: Networks of the reward signals and the tensors that their losses keep for a minibatch.
        companion_bytes: Models of the companions, with the state of their optimizers, and their data buffers.
        replays: Whether the rows belong to a replay memory.
        ranks: Number of processes that train together; each has its own ring, networks and signals, and a part of each
            minibatch.
    """

    ring_rows: int
    row_bytes: int
    policy_bytes: int = 0
    network_bytes: int = 0
    batch_bytes: int = 0
    signal_bytes: int = 0
    companion_bytes: int = 0
    replays: bool = False
    ranks: int = 1

    @property
    def total_bytes(self) -> int:
        """Bytes of ring or replay memory, networks, a minibatch, reward signals and companions, of all ranks."""
        of_each = self.ring_rows * self.row_bytes + self.network_bytes + self.signal_bytes
        return self.ranks * of_each + self.batch_bytes + self.companion_bytes


@dataclass(frozen=True, slots=True)
class EstimateMemory:
    """Asks the trainers what training a behavior requires. `MemoryEstimate` is the reply, even while the trainers are busy.

    Attributes:
        number: Number of the question; repeated in the answer.
        spec: Observations and actions of the behavior.
        settings: Trainer settings of the behavior.
    """

    number: int
    spec: BehaviorSpec
    settings: TrainerSettings


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Answers an `EstimateMemory`.

    Attributes:
        number: Number of the question.
        footprint: Memory that training requires; None if the behavior cannot be trained.
        refusal: Why it cannot be trained, for the actor that declared it.
        metadata: Metadata of the refusal, for programs.
        fault: Error of the estimate itself, independent of the declaration; its traceback is in the log.
    """

    number: int
    footprint: Footprint | None = None
    refusal: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
