"""REINFORCE (Williams 1992), a trainer from the ground up: all that `Trainer` leaves open, and nothing else.

It keeps the chunks that arrive, and takes one step along the gradient of each update's discounted rewards. There is no critic,
and there is no memory: `ActorCriticTrainer` and `OffPolicyTrainer` have more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.link.to_trainers import Experience
from learner.shared.settings.hyperparameters import HyperparameterSettings
from learner.training.networks.fit import require_fit
from learner.training.networks.policy import PolicyNetwork
from learner.training.optimizers.adam import FlatAdam
from learner.training.trainers.actor_critic.loss import log_probability
from learner.training.trainers.base import Trainer, TrainerContext


class ReinforceTrainer(Trainer):
    """Raises the likelihood of each action by the discounted rewards that followed it.

    Args:
        context: Settings, spec and services of the run.
    """

    settings_model = HyperparameterSettings

    def __init__(self, context: TrainerContext) -> None:
        super().__init__(context)
        hyper, extrinsic = self.trainer_settings.hyperparameters, self.trainer_settings.reward_signals.extrinsic
        self._optimizer = FlatAdam(self.policy, hyper.learning_rate, context.reduce)
        self._gamma = 0.0 if extrinsic is None else extrinsic.gamma
        self._chunks: list[Chunk] = []

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Creates the acting network."""
        weights = torch.Generator().manual_seed(self.context.seed)
        return PolicyNetwork(spec, self.trainer_settings.network_settings, weights).to(self.context.device)

    def receive(self, item: Experience) -> None:
        """Keeps a chunk; one without steps has only the ends of episodes."""
        if item.chunk.rows:
            self._chunks.append(item.chunk)

    def is_trainable(self) -> bool:
        """Returns whether ``buffer_size`` steps are there."""
        return self._steps >= self.trainer_settings.hyperparameters.buffer_size

    def train(self) -> None:
        """Takes one gradient step on all chunks."""
        names = [f"obs/{each.name}" for each in self.policy.spec.observations]
        output = self.policy([self._column(name) for name in names], self._column("action_mask"))
        discrete = self._column("discrete_action")
        taken = None if discrete is None else discrete.long()
        likelihood = log_probability(output, self._column("continuous_action"), taken, "joint").squeeze(1)
        returns = np.concatenate([discounted(chunk, self._gamma) for chunk in self._chunks])
        weights = torch.from_numpy((returns - returns.mean()) / (returns.std() + 1e-6)).to(likelihood)
        loss = -(weights * likelihood).mean()
        self._optimizer.learning_rate = self.trainer_settings.hyperparameters.learning_rate  # an operator may change it
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.stats_reporter.add_stat("Losses/Policy Loss", loss.item())

    def sync_models(self) -> None:
        """Publishes the version, and forgets the steps that it was trained on."""
        steps = self._steps
        self._chunks.clear()
        self.complete_update(steps)

    def model_state(self) -> dict[str, Any]:
        """Returns the network and the optimizer."""
        network = {name: value.clone() for name, value in self.policy.state_dict().items()}
        return {"network": network, "optimizer": self._optimizer.state_dict()}

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads what `model_state` returned."""
        require_fit(state["network"], self.policy.state_dict())
        self.policy.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])

    @property
    def _steps(self) -> int:
        return sum(chunk.rows for chunk in self._chunks)

    def _column(self, name: str) -> Tensor | None:
        """Returns a column of all chunks, ``[N, ...]``; None without one."""
        found = [chunk.columns[name] for chunk in self._chunks if name in chunk.columns]
        return torch.from_numpy(np.concatenate(found)).to(self.context.device) if found else None


def discounted(chunk: Chunk, gamma: float) -> NDArray[np.float64]:
    """Returns the sum of the discounted rewards from each step to the end of its segment, ``[N]``."""
    returns = chunk.columns["reward"].astype(np.float64)
    last = set(np.cumsum(chunk.columns["length"]) - 1)
    for row in reversed(range(chunk.rows)):
        if row not in last:
            returns[row] += gamma * returns[row + 1]
    return returns
