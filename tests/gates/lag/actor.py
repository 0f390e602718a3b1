"""An actor that lags behind: it acts with the policy of some versions ago, whatever was published since."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from learner.publish.describe import Progress
from tests.learner.trainers.in_process import Bench, CartPoleActor, Published


class _Version(NamedTuple):
    number: int
    state: dict[str, Tensor]


class Delayed(Published):
    """A publisher whose actors get each version only when so many newer ones are there.

    Attributes:
        lag: how many.
    """

    def __init__(self, lag: int) -> None:
        super().__init__()
        self.lag = lag
        self._versions: deque[_Version] = deque(maxlen=lag + 1)

    def publish(self, state: Mapping[str, Tensor], progress: Progress) -> None:
        """Keeps a copy among the newest; the oldest of them acts."""
        super().publish(state, progress)
        self._versions.append(_Version(progress.version, self.state))

    @property
    def acting(self) -> _Version:
        """What acts now: in the beginning the first version."""
        return self._versions[0]


class LaggingActor(CartPoleActor):
    """Steps CartPole with the policy of ``delayed.lag`` versions ago, and records its log-probabilities.

    Args:
        bench: where chunks go.
        delayed: where policies come from.
        seed: of environments and actions.
    """

    def __init__(self, bench: Bench, delayed: Delayed, seed: int) -> None:
        super().__init__(bench, seed=seed)
        self._delayed = delayed

    def _take_policy(self) -> None:
        acting = self._delayed.acting
        if acting.number != self._version:
            self._policy.load_state_dict(acting.state)
            self._version = acting.number
