"""All reward signals of a trainer as one: K streams of rewards, and what learns beside the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from learner.common.exits import ExitCode, UserError
from learner.rewards.extrinsic import EXTRINSIC
from learner.rewards.signals import LearnedSignal, RewardSignal
from learner.rewards.transitions import Transitions


class SignalSet:
    """The K reward signals of a behavior, in the order of the value heads.

    Args:
        signals: at least one.
        device: where experience is.

    Attributes:
        names: as in the run file.
        gamma: ``[K]`` float64, the discounts.
        ignores_ends: ``[K]`` bool, whether the value behind a terminal step counts.
        needs_observations: whether any signal looks at more than the environment's reward.
        learns: whether any signal has a network of its own.
    """

    def __init__(self, signals: Sequence[RewardSignal], device: torch.device) -> None:
        self._signals = tuple(signals)
        self._learned = tuple(signal for signal in signals if isinstance(signal, LearnedSignal))
        self.names = tuple(signal.name for signal in signals)
        self.gamma = torch.tensor([signal.gamma for signal in signals], dtype=torch.float64, device=device)
        self.ignores_ends = torch.tensor([signal.ignores_ends for signal in signals], device=device)
        self.needs_observations = any(signal.needs_observations for signal in signals)
        self.learns = bool(self._learned)
        self._may_fail = any(name != EXTRINSIC for name in self.names)  # whose rewards were checked on their way in
        self._faulty = torch.zeros(len(self.names), dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return len(self._signals)

    @torch.no_grad()
    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes ``[B, K]`` float64.

        Raises:
            UserError: a signal of a package returns something else.
        """
        rewards = torch.stack([_rewards(signal, transitions) for signal in self._signals], dim=1)
        if self._may_fail:
            self._faulty |= ~rewards.isfinite().all(0)
        return rewards

    def take_faulty(self) -> tuple[str, ...]:
        """Returns the signals with rewards that were not finite since the last call; waits for the device."""
        found = tuple(name for name, faulty in zip(self.names, self._faulty.tolist(), strict=True) if faulty)
        self._faulty.zero_()
        return found

    def update(self, transitions: Transitions) -> None:
        """Lets every signal that learns take one gradient step."""
        for signal in self._learned:
            signal.update(transitions)

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether everything that the signals have learned is finite."""
        found = torch.ones((), dtype=torch.bool, device=self.gamma.device)
        for signal in self._learned:
            found = found & signal.is_finite()
        return found

    def statistics(self) -> dict[str, float]:
        """Returns what the signals report of the steps since the last call."""
        found: dict[str, float] = {}
        for signal in self._learned:
            found.update(signal.statistics())
        return found

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every signal that learns, by name; copies."""
        return {signal.name: signal.state_dict() for signal in self._learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a saved state.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: it does not fit.
        """
        for signal in self._learned:
            if signal.name not in state:
                raise ValueError(f"reward signal {signal.name} is missing in the saved state")
            signal.load_state_dict(state[signal.name])


def _rewards(signal: RewardSignal, transitions: Transitions) -> Tensor:
    """Computes the rewards ``[B]`` float64 of one signal.

    Raises:
        UserError: it returns something else.
    """
    found: Any = signal.evaluate(transitions)
    if not isinstance(found, Tensor) or found.shape != transitions.reward.shape:
        shown = f"a tensor {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise UserError(
            ExitCode.TRAINER_FAILED,
            f"reward signal {signal.name!r} returned {shown} for {len(transitions.reward)} steps: its evaluate must return "
            f"a tensor [{len(transitions.reward)}], one reward for each; the package must be repaired",
        )
    return found.double()
