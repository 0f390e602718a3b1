"""Learning in addition to policy and critics: reward signals with their own networks, and behavioral cloning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rollcast.enums import Squash
from torch import Tensor

from learner.training.networks.policy import PolicyNetwork
from learner.training.rewards.learned import LearnedReward
from learner.training.rewards.signals import EXTRINSIC, SignalSet, build_signals
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.cloning import build_cloning
from learner.training.trainers.episode_statistics import EpisodeRewards


class Auxiliaries:
    """The reward signals and the cloning of one trainer, saved, checked and reported together.

    Args:
        context: Context of the trainer.
        numbers: Reported numbers of the trainer; the rewards of the signals are added to them.
        policy: The policy, on its device.
        weights: Generator of initial weights.
        squash: How actors squash a continuous draw.

    Raises:
        UserError: A signal or the demonstrations do not fit the behavior.

    Attributes:
        signals: The reward signals.
        cloning: Imitates demonstrations in addition to the rewards; None if the run file does not request it.
    """

    def __init__(
        self,
        context: TrainerContext,
        numbers: dict[str, float],
        policy: PolicyNetwork,
        weights: torch.Generator,
        squash: Squash = Squash.CLIP3_DIV3,
    ) -> None:
        behavior, device = context.behavior, context.device
        signals = build_signals(
            behavior.settings.reward_signals,
            behavior.spec,
            weights,
            device,
            reduce=context.reduce,
            squash=squash,
            models=context.companions.models,
        )
        self.signals = SignalSet(signals, device)
        self.cloning = build_cloning(context, policy, squash)
        self._context = context
        self._numbers = numbers
        self._episode_rewards = EpisodeRewards()

    def begin_draws(self, seed: int) -> None:
        """Seeds the draws of the built-in signals for an update of one of several learners."""
        for signal in self.signals.learned:
            if isinstance(signal, LearnedReward):
                signal.begin_draws(seed)

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all learned parameters are finite."""
        found = self.signals.is_finite()
        return found if self.cloning is None else found & self.cloning.is_finite()

    def report(self) -> None:
        """Reports the losses since the last call; waits for the device."""
        cloned = {} if self.cloning is None else self.cloning.statistics()
        for name, value in {**self.signals.statistics(), **cloned}.items():
            self._context.stats.add_stat(name, value)

    def report_episodes(self, sums: Mapping[str, float], ended: int) -> None:
        """Reports the rewards of an episode by signal; `EpisodeStatistics` reports the extrinsic rewards to the trackers.

        Args:
            sums: Sums of rewards over the newest steps, by signal.
            ended: Number of episodes that ended with one of these steps.
        """
        for name, episode in self._episode_rewards.add(sums, ended).items():
            self._numbers[f"episode_signal_reward/{name}"] = episode
            if name != EXTRINSIC:
                shown = np.full(self._episode_rewards.episodes, episode)
                self._context.stats.add_stats(f"Policy/{name.capitalize()} Reward", shown)

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the states of signals and cloning."""
        cloning = {} if self.cloning is None else self.cloning.state_dict()
        return {"signals": self.signals.state_dict(), "cloning": cloning}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads saved states; the state of cloning may be missing if the run file added it later.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The states do not fit.
        """
        self.signals.load_state_dict(state["signals"])
        if self.cloning is not None and state.get("cloning"):
            self.cloning.load_state_dict(state["cloning"])
