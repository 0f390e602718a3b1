"""A trainer that does not train: the policy of a saved state, and nothing else of what it was trained with.

So acting needs no demonstrations, no replay memory and no critic, and of a saved state only the policy must fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from rollcast.specs import BehaviorSpec

from learner.ingest.behaviors import NOT_TRAINING
from learner.link.experience import Pace, QueuedChunk
from learner.networks.fit import require_fit
from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import SquashedPolicyNetwork
from learner.trainers.on_policy import ahead_limit_steps
from learner.trainers.rl import RLTrainer

_POLICY: Final = "policy."
"""What the names of its parameters begin with, beside those of critics."""


class FrozenTrainer(RLTrainer):
    """Publishes the policy of one behavior, hands on what is played with it, and drops every step; for all of our trainers.

    Args:
        context: everything from outside; its ``is_training`` is False.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    @property
    def _is_squashed(self) -> bool:
        return self.trainer_settings.traits.squashed

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Makes the network that acts, with the initial weights of its trainer."""
        kind = SquashedPolicyNetwork if self._is_squashed else PolicyNetwork
        weights = torch.Generator().manual_seed(self.context.seed)
        return kind(spec, self.trainer_settings.network_settings, weights).to(self.context.device)

    def create_optimizer(self) -> None:
        """Needs none."""

    def _publish_statistics(self) -> None:
        """Has none: what a normalizer shows is saved with its network."""

    def model_state(self) -> dict[str, Any]:
        """Returns the policy alone; nobody saves it."""
        parameters = self.policy.state_dict()
        return {
            "networks" if self._is_squashed else "network": {f"{_POLICY}{key}": parameters[key] for key in parameters}
        }

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Takes over the policy of what a trainer's `model_state` returned.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: it does not fit.
        """
        networks = state["networks" if self._is_squashed else "network"]
        if not isinstance(networks, Mapping):
            raise TypeError(f"the networks are a {type(networks).__name__}")
        found = {
            name.removeprefix(_POLICY): value
            for name, value in networks.items()
            if isinstance(name, str) and name.startswith(_POLICY)
        }
        require_fit(found, self.policy.state_dict())
        self.policy.load_state_dict(found)

    def _process_trajectory(self, item: QueuedChunk) -> None:
        self.tally.add(item.chunk)
        if item.chunk.rows:
            self.context.ledger.drop_queued(self.brain_name, NOT_TRAINING, item.chunk.rows)

    def is_trainable(self) -> bool:
        """Returns False."""
        return False

    def setup(self) -> None:
        """Never happens."""

    def train(self) -> None:
        """Never happens."""

    def sync_models(self) -> None:
        """Never happens."""

    def teardown(self) -> None:
        """Never happens."""

    def finish(self) -> None:
        """Has collected nothing."""

    def _set_pace(self) -> None:
        """Lets actors run as in training."""
        self.queue.set_pace(Pace(ahead_limit_steps=ahead_limit_steps(self.trainer_settings)))
