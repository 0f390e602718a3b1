"""The reward signals of a behavior, in the order of their value heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from learner.exits import ExitCode, UserError
from learner.rewards.extrinsic import ExtrinsicReward
from learner.settings.rewards import RewardSignals


class RewardSignal(Protocol):
    """One stream of rewards with a discount of its own.

    Attributes:
        name: as in the run file.
        gamma: its discount.
        ignores_ends: whether the value behind a terminal step counts (true of curiosity-like signals).
    """

    @property
    def name(self) -> str:
        """The name in the run file."""

    @property
    def gamma(self) -> float:
        """The discount."""

    @property
    def ignores_ends(self) -> bool:
        """Whether the value behind a terminal step counts."""

    def evaluate(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Computes rewards ``[R]`` of rows by column name, ``[R, ...]`` each; those of final rows are not used."""


def build_signals(settings: RewardSignals) -> list[RewardSignal]:
    """Builds the signals that the run file names.

    Raises:
        UserError: one is not built yet, or there is none.
    """
    signals: list[RewardSignal] = []
    for name, signal in settings.active().items():
        if name != "extrinsic":
            raise UserError(ExitCode.RUN_FILE, f"reward_signals.{name} is not built yet: remove it from the run file")
        signals.append(ExtrinsicReward(signal.gamma, signal.strength))
    if not signals:
        raise UserError(ExitCode.RUN_FILE, "reward_signals is empty, so nothing would be learned: add extrinsic: {}")
    return signals
