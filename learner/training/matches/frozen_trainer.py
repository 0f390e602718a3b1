"""A trainer that does not train: it loads only the policy of a saved state.

Acting therefore needs no demonstrations, no replay memory and no critic, and only the policy of a saved state must fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from rollcast.specs import BehaviorSpec

from learner.link.to_front import NOT_TRAINING
from learner.link.to_trainers import Experience
from learner.training.networks.fit import require_fit
from learner.training.networks.policy import PolicyNetwork, build_policy
from learner.training.networks.squashed import SquashedPolicyNetwork
from learner.training.trainers.rl import RLTrainer

_POLICY: Final = "policy."
"""Prefix of the policy's parameter names, which separates them from those of critics."""


class FrozenTrainer(RLTrainer):
    """Publishes the policy of one behavior, forwards its episodes, and drops every step; replaces any built-in trainer.

    Args:
        context: Everything the trainer receives from the run; its ``is_training`` is False.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    @property
    def _is_squashed(self) -> bool:
        return self.trainer_settings.traits.squashed

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Creates the acting network, with the initial weights of its trainer."""
        kind = SquashedPolicyNetwork if self._is_squashed else PolicyNetwork
        weights = torch.Generator().manual_seed(self.context.seed)
        return build_policy(kind, spec, self.trainer_settings.network_settings, weights).to(self.context.device)

    def create_optimizer(self) -> None:
        """Does nothing: no optimizer is needed."""

    def _publish_statistics(self) -> None:
        """Does nothing: the statistics of a normalizer are saved with its network."""

    def model_state(self) -> dict[str, Any]:
        """Returns only the policy; it is never saved."""
        parameters = self.policy.state_dict()
        return {
            "networks" if self._is_squashed else "network": {f"{_POLICY}{key}": parameters[key] for key in parameters}
        }

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads the policy from the result of a trainer's `model_state`.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: The state does not fit.
        """
        networks = state["networks" if self._is_squashed else "network"]
        if not isinstance(networks, Mapping):
            raise TypeError(f"the networks are a {type(networks).__name__}, not a map")
        found = {
            name.removeprefix(_POLICY): value
            for name, value in networks.items()
            if isinstance(name, str) and name.startswith(_POLICY)
        }
        require_fit(found, self.policy.state_dict())
        self.policy.load_state_dict(found)

    def _process_trajectory(self, item: Experience) -> None:
        self.episode_statistics.add(item.chunk, item.source)
        self.context.outcomes.drop(NOT_TRAINING, item.chunk.rows)

    def is_trainable(self) -> bool:
        """Returns False."""
        return False

    def train(self) -> None:
        """Does nothing, because it is never called."""

    def sync_models(self) -> None:
        """Does nothing, because it is never called."""
