"""The policy network: computes parameters of action distributions from observations in wire form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from rollcast.specs import ActionSpec, BehaviorSpec
from torch import Tensor, nn

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.extensions import POLICIES
from learner.shared.settings.network import NetworkSettings
from learner.training.networks.body import Body
from learner.training.networks.heads import (
    LEAST_RECORDED_LOG_STD,
    LOG_CLIP,
    LOG_STD_MAX,
    CategoricalHead,
    GaussianHead,
    StateGaussianHead,
    initial_log_stds,
)
from learner.training.networks.initializers import Initializer
from learner.training.networks.lstm import Unrolled
from learner.training.networks.observations import policy_places
from learner.training.networks.tower import BoardCategoricalHead, BoardPlanesHead
from learner.training.networks.visual import added_module


class PolicyOutput(NamedTuple):
    """Parameters of the action distributions; None for parts that the behavior lacks.

    Attributes:
        mean: ``[B, n]``, mean of the raw draw of each continuous axis.
        log_std: ``[B, n]``.
        logits: ``[B, sum(branches)]``, log-probabilities of the allowed choices, each branch normalized.
        recurrent_out: ``[B, memory_size]``.
    """

    mean: Tensor | None
    log_std: Tensor | None
    logits: Tensor | None
    recurrent_out: Tensor | None

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether actors can draw from it and compute the draw's probability.

        They exponentiate the log standard deviation and divide by the result: both must be finite in float32.
        """
        deviation = None if self.log_std is None else self.log_std.abs().exp()
        parts = [part for part in (self.mean, deviation, self.logits, self.recurrent_out) if part is not None]
        return torch.stack([part.isfinite().all() for part in parts]).all()


class PolicyNetwork(nn.Module):
    """The acting network, with casting, scaling, one-hot encoding, axis order and normalization inside.

    Its methods take all observations of the behavior, and ignore those of ``critic_only``.

    Args:
        spec: Observations and actions of the behavior.
        settings: The network block of the run file.
        generator: Draws the initial weights; None uses torch's default generator.

    Raises:
        UserError: The settings do not fit the behavior.

    Attributes:
        memory_size: Number of values in a memory; 0 without memory.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, generator: torch.Generator | None = None) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self.spec = spec
        self.body = Body(
            spec.observations, settings, initializer, policy_places(spec.observations, settings.critic_only)
        )
        self.memory_size = self.body.memory_size
        branches = spec.action.discrete_branches
        self.gaussian = self._gaussian(settings, spec.action, initializer) if spec.action.continuous_size else None
        self.categorical = self._categorical(settings, tuple(branches), initializer) if branches else None

    @property
    def reads(self) -> tuple[int, ...]:
        """Indices of the observations that it reads, in the order of the spec."""
        return self.body.reads

    def placed(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Puts observations at their places in the spec, with empty tensors at the places that the policy ignores.

        Args:
            observations: ``[B, *shape]`` each, only those that the policy reads.
        """
        found = [torch.empty(0)] * len(self.spec.observations)
        for index, values in zip(self.reads, observations, strict=True):
            found[index] = values
        return found

    def _gaussian(
        self, settings: NetworkSettings, action: ActionSpec, initializer: Initializer
    ) -> GaussianHead | StateGaussianHead:
        start = initial_log_stds(action, settings.log_std_init)
        if settings.std == "state":
            bounds = LEAST_RECORDED_LOG_STD, LOG_STD_MAX + LOG_CLIP
            return StateGaussianHead(self.body.size, start, initializer, bounds)
        return GaussianHead(self.body.size, start, initializer)

    def _categorical(
        self, settings: NetworkSettings, branches: tuple[int, ...], initializer: Initializer
    ) -> CategoricalHead | BoardPlanesHead:
        planes, tower = self.body.planes, settings.tower
        if planes is None or tower is None:
            return CategoricalHead(self.body.size, branches, initializer)
        if tower.policy_head == "conv":
            return BoardPlanesHead(planes, branches, initializer)
        return BoardCategoricalHead(planes, tower, branches, initializer)

    def forward(
        self,
        observations: Sequence[Tensor],
        action_masks: Tensor | None = None,
        recurrent_in: Tensor | None = None,
    ) -> PolicyOutput:
        """Computes distribution parameters of one step.

        Args:
            observations: ``[B, *shape]`` each, in wire type and shape.
            action_masks: ``[B, sum(branches)]`` of any numeric type, 1 = allowed; None = all allowed.
            recurrent_in: Memory before the step, ``[B, memory_size]``; None without memory.
        """
        hidden, recurrent_out = self.body.step(observations, recurrent_in)
        return self.act(hidden, action_masks)._replace(recurrent_out=recurrent_out)

    def unroll(
        self, observations: Sequence[Tensor], action_masks: Tensor | None, sequences: Unrolled | None
    ) -> PolicyOutput:
        """Computes the distribution parameters of B steps, which form whole sequences if the network has memory.

        Args:
            observations: ``[B, *shape]`` each; packed with memory, otherwise in any order.
            action_masks: As in `forward`.
            sequences: Layout of the sequences; None without memory.
        """
        return self.act(self.body.forward(observations, sequences), action_masks)

    def act(self, hidden: Tensor, action_masks: Tensor | None) -> PolicyOutput:
        """Computes distribution parameters from the output of the body, ``[B, size]``."""
        mean, log_std = (None, None) if self.gaussian is None else self.gaussian.forward(hidden)
        logits = None if self.categorical is None else self.categorical.forward(hidden, action_masks)
        return PolicyOutput(mean, log_std, logits, None)


_Policy = TypeVar("_Policy", bound=PolicyNetwork)


def build_policy(
    kind: type[_Policy], spec: BehaviorSpec, settings: NetworkSettings, generator: torch.Generator | None = None
) -> _Policy:
    """Builds the acting network: that of ``network_settings.policy``, or of the trainer.

    Args:
        kind: The trainer's; the user's extends it.
        spec: Observations and actions of the behavior.
        settings: The network block of the run file.
        generator: Draws the initial weights; None uses torch's default generator.

    Raises:
        UserError: The settings do not fit the behavior, or the user's cannot be created or is none of this kind.
    """
    name = settings.policy
    if name is None:
        return kind(spec, settings, generator)
    setting = "network_settings.policy"
    made = added_module(setting, name, POLICIES, lambda factory: factory(spec, settings, generator))
    if isinstance(made, kind):
        return made
    raise UserError(
        ExitCode.RUN_FILE,
        f"{setting} names {name!r}, which makes a {type(made).__name__}: with this trainer it must be a "
        f"{kind.__module__}.{kind.__name__}",
    )
