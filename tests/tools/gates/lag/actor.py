"""An actor that acts with the policy of several versions ago."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.publish.describe import Progress
from tests.learner.trainers.in_process import Bench, CartPoleActor, Published


class _Version(NamedTuple):
    number: int
    state: dict[str, Tensor]


class Delayed(Published):
    """A publisher that delivers each version after this many newer ones exist.

    Attributes:
        lag: How many.
    """

    def __init__(self, lag: int) -> None:
        super().__init__()
        self.lag = lag
        self._versions: deque[_Version] = deque(maxlen=lag + 1)

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Keeps a copy among the newest; the oldest of them acts."""
        header = super().publish(state, progress, keep=keep)
        self._versions.append(_Version(progress.version, self.state))
        return header

    @property
    def acting(self) -> _Version:
        """Returns what acts now: in the beginning the first version."""
        return self._versions[0]


class LaggingActor(CartPoleActor):
    """Steps CartPole with the policy of ``delayed.lag`` versions ago.

    Args:
        bench: Where chunks go.
        delayed: Where policies come from.
        seed: Of environments and actions.
    """

    def __init__(self, bench: Bench, delayed: Delayed, seed: int) -> None:
        super().__init__(bench, seed=seed)
        self._delayed = delayed

    def _take_policy(self) -> None:
        acting = self._delayed.acting
        if acting.number != self._version:
            self._policy.load_state_dict(acting.state)
            self._version = acting.number
