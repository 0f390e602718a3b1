"""The policy network: observations as they are on the wire to the parameters of action distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.body import Body
from learner.networks.heads import CategoricalHead, GaussianHead
from learner.networks.initializers import Initializer
from learner.networks.lstm import Unrolled
from learner.networks.tower import BoardCategoricalHead
from learner.settings.network import NetworkSettings


class PolicyOutput(NamedTuple):
    """Parameters of the action distributions; a part that the behavior lacks is None.

    Attributes:
        mean: ``[B, n]``, of the raw draw of each continuous axis.
        log_std: ``[B, n]``.
        logits: ``[B, sum(branches)]``, log-probabilities of the allowed choices, each branch normalized.
        recurrent_out: ``[B, memory_size]``.
    """

    mean: Tensor | None
    log_std: Tensor | None
    logits: Tensor | None
    recurrent_out: Tensor | None

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether actors can draw from it, and compute how likely the draw was.

        They take the deviation, and divide by it: both must be numbers of float32.
        """
        deviation = None if self.log_std is None else self.log_std.abs().exp()
        parts = [part for part in (self.mean, deviation, self.logits, self.recurrent_out) if part is not None]
        return torch.stack([part.isfinite().all() for part in parts]).all()


class PolicyNetwork(nn.Module):
    """What acts. Casting, scaling, one-hot encoding, axis order and normalization are all inside.

    Args:
        spec: what the behavior sees and does.
        settings: the network block of the run file.
        generator: where initial weights come from; None is torch's own.

    Raises:
        UserError: the settings ask for something that does not fit the behavior.

    Attributes:
        memory_size: numbers of a memory; 0 without.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, generator: torch.Generator | None = None) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self.spec = spec
        self.body = Body(spec.observations, settings, initializer)
        self.memory_size = self.body.memory_size
        continuous, branches = spec.action.continuous_size, spec.action.discrete_branches
        self.gaussian = GaussianHead(self.body.size, continuous, initializer) if continuous else None
        self.categorical = self._categorical(settings, tuple(branches), initializer) if branches else None

    def _categorical(
        self, settings: NetworkSettings, branches: tuple[int, ...], initializer: Initializer
    ) -> CategoricalHead:
        planes, tower = self.body.planes, settings.tower
        if planes is None or tower is None:
            return CategoricalHead(self.body.size, branches, initializer)
        return BoardCategoricalHead(planes, tower, branches, initializer)

    def forward(
        self,
        observations: Sequence[Tensor],
        action_masks: Tensor | None = None,
        recurrent_in: Tensor | None = None,
    ) -> PolicyOutput:
        """Computes distribution parameters of one step.

        Args:
            observations: one ``[B, *shape]`` each, in wire type and shape.
            action_masks: ``[B, sum(branches)]`` of any numeric type, 1 = allowed; None = all allowed.
            recurrent_in: the memory before the step, ``[B, memory_size]``; None without memory.
        """
        hidden, recurrent_out = self.body.step(observations, recurrent_in)
        return self.act(hidden, action_masks)._replace(recurrent_out=recurrent_out)

    def unroll(
        self, observations: Sequence[Tensor], action_masks: Tensor | None, sequences: Unrolled | None
    ) -> PolicyOutput:
        """Computes the same of B steps that are whole sequences if the network has a memory.

        Args:
            observations: ``[B, *shape]`` each; packed with a memory, else in any order.
            action_masks: as in `forward`.
            sequences: how they are sequences; None without memory.
        """
        return self.act(self.body.forward(observations, sequences), action_masks)

    def act(self, hidden: Tensor, action_masks: Tensor | None) -> PolicyOutput:
        """Computes distribution parameters from the body's numbers ``[B, size]``."""
        mean, log_std = (None, None) if self.gaussian is None else self.gaussian.forward(hidden)
        logits = None if self.categorical is None else self.categorical.forward(hidden, action_masks)
        return PolicyOutput(mean, log_std, logits, None)
