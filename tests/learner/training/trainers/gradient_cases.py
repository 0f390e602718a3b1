"""Networks, minibatches and losses for the recorded gradients.

All numbers come from numpy's legacy generator, whose stream never changes, and fill parameters in the order of their
names; so the recorded file holds gradients only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import SquashedPolicyNetwork
from learner.training.networks.twin import TwinCritic
from learner.training.networks.value import ActorCritic, Sequences, build_critic
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, Ratio
from learner.training.trainers.replay_batches import Batch as ReplayBatch
from learner.training.trainers.replay_batches import Remembered
from learner.training.trainers.sac.trainer import SACNetworks, Temperatures
from tests.learner.training.networks.specs import behavior, entities, goal, image, vector

STEPS = 10
SIGNALS = 2
BOARD = image("board", (3, 4, 2), scale=2.0)
TOWER = {"depth": 1, "width": 4, "policy_planes": 2, "value_planes": 1}
BATCH_SIZES = (4, 3, 3)
"""Of ten steps in four packed sequences."""


class Case(NamedTuple):
    """A network and its training.

    Attributes:
        spec: What the behavior sees and does.
        network: Settings.
        ratio: Of the losses of actor-critics.
        shared: Whether the critic is a head on the policy's body.
        masked: Whether actions are forbidden.
    """

    spec: BehaviorSpec
    network: dict[str, Any]
    ratio: Ratio = "per_action"
    shared: bool = False
    masked: bool = False


MEMORY = {"memory": {"memory_size": 6, "sequence_length": 4}}
CASES = {
    "axes": Case(behavior(continuous=2), {}),
    "axes, swish, shared": Case(behavior(continuous=2), {"activation": "swish"}, "joint", shared=True),
    "branch, relu": Case(behavior(branches=(3,)), {"activation": "relu", "num_layers": 3}),
    "masked branches": Case(behavior(branches=(3, 2)), {}, masked=True),
    "both, goal": Case(
        behavior(vector(), goal(), continuous=1, branches=(3, 2)), {"activation": "swish"}, "joint", masked=True
    ),
    "both, entities": Case(behavior(entities(), vector(), continuous=1, branches=(2,)), {"num_layers": 1}, shared=True),
    "both, pixels": Case(
        behavior(image(shape=(6, 6, 1)), vector(), continuous=1, branches=(2, 2)),
        {"vis_encode_type": "fully_connected"},
    ),
    "axes, memory": Case(behavior(continuous=2), MEMORY),
    "both, memory, shared": Case(behavior(continuous=1, branches=(3,)), MEMORY, "joint", shared=True, masked=True),
    "board": Case(behavior(BOARD, vector("hand", 2), branches=(13,)), {"tower": TOWER}, masked=True),
}


class Numbers:
    """Random numbers that do not depend on versions of libraries.

    Args:
        seed: Of the stream.
    """

    def __init__(self, seed: int) -> None:
        self._stream = np.random.RandomState(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Draws normal numbers, float32."""
        return torch.from_numpy(np.asarray(self._stream.standard_normal(shape) * scale, np.float32))

    def below(self, limit: int, *shape: int) -> Tensor:
        """Draws whole numbers from 0, int64."""
        return torch.from_numpy(self._stream.randint(0, limit, shape).astype(np.int64))

    @torch.no_grad()
    def fill(self, network: nn.Module) -> None:
        """Fills all parameters in the order of their names."""
        for _, parameter in sorted(network.named_parameters()):
            parameter.copy_(self.normal(*parameter.shape, scale=0.3))

    def observations(self, spec: BehaviorSpec, rows: int) -> list[Tensor]:
        """Draws what is observed, in the types of the ring."""
        return [
            self.below(200, rows, *one.shape).to(torch.uint8)
            if one.dtype == np.uint8
            else self.normal(rows, *one.shape)
            for one in spec.observations
        ]

    def masks(self, branches: tuple[int, ...], rows: int) -> Tensor:
        """Forbids about a third of the choices, and never the first of a branch."""
        masks = (self.below(3, rows, sum(branches)) > 0).to(torch.uint8)
        masks[:, np.cumsum((0, *branches[:-1]))] = 1
        return masks

    def choices(self, branches: tuple[int, ...], masks: Tensor | None, rows: int) -> Tensor:
        """Draws choices that are allowed, int64 ``[rows, b]``, each plus the offset of its branch."""
        first = torch.from_numpy(np.cumsum((0, *branches[:-1])))
        drawn = torch.stack([self.below(size, rows) for size in branches], 1) + first
        return drawn if masks is None else torch.where(masks.gather(1, drawn) > 0, drawn, first.expand_as(drawn))


def _settings(case: Case) -> NetworkSettings:
    return NetworkSettings.model_validate({"hidden_units": 5, "num_layers": 2, **case.network})


class ActorCriticCase(NamedTuple):
    """The inputs of an actor-critic's loss."""

    network: ActorCritic
    observations: list[Tensor]
    masks: Tensor | None
    sequences: Sequences | None
    batch: Batch
    coefficients: Coefficients


def actor_critic(case: Case, *, rho_bar: float = 1.0, epsilon: float = 0.2) -> ActorCriticCase:
    """Builds an actor-critic and a minibatch that it has not acted itself."""
    numbers, spec, settings = Numbers(1), case.spec, _settings(case)
    policy = PolicyNetwork(spec, settings)
    network = ActorCritic(policy, build_critic(policy, settings, signals=SIGNALS, shared=case.shared))
    numbers.fill(network)
    branches, axes = tuple(spec.action.discrete_branches), spec.action.continuous_size
    masks = numbers.masks(branches, STEPS) if case.masked else None
    sequences = None
    if network.memory_size:
        memories = [numbers.normal(BATCH_SIZES[0], network.memory_size) for _ in range(2)]
        sequences = Sequences(torch.tensor(BATCH_SIZES), memories[0], None if case.shared else memories[1])
    batch = Batch(
        numbers.normal(STEPS, axes) if axes else None,
        numbers.choices(branches, masks, STEPS) if branches else None,
        numbers.normal(STEPS, 1 if case.ratio == "joint" else axes + len(branches), scale=0.3) - 1.2,
        numbers.normal(STEPS, 1),
        numbers.normal(STEPS, SIGNALS),
    )
    coefficients = Coefficients(epsilon=epsilon, beta=0.05, ratio=case.ratio, rho_bar=rho_bar)
    return ActorCriticCase(network, numbers.observations(spec, STEPS), masks, sequences, batch, coefficients)


class ReplayCase(NamedTuple):
    """The inputs of SAC's losses without noise; the second signal ignores ends."""

    networks: SACNetworks
    batch: ReplayBatch


def replay(case: Case) -> ReplayCase:
    """Builds the networks of SAC and a minibatch of replay memory."""
    numbers, spec, settings = Numbers(2), case.spec, _settings(case)
    policy = SquashedPolicyNetwork(spec, settings)
    networks = SACNetworks(policy, TwinCritic(spec, settings, SIGNALS), Temperatures(spec.action, 0.3))
    numbers.fill(networks)
    branches, axes = tuple(spec.action.discrete_branches), spec.action.continuous_size
    masks, after = (numbers.masks(branches, STEPS) if case.masked else None for _ in range(2))
    remembered = None
    if policy.memory_size:
        # Four sequences of three steps at most, each followed by what was seen last.
        sizes, rows = torch.tensor((4, *BATCH_SIZES)), 4 + STEPS
        now = torch.from_numpy(np.arange(4, rows) - np.repeat((4, 4, 3), BATCH_SIZES))
        memory = numbers.normal(4, policy.memory_size)
        remembered = Remembered(numbers.observations(spec, rows), now, sizes, memory)
        observations = [values.index_select(0, now) for values in remembered.observations]
    else:
        observations = numbers.observations(spec, STEPS)
    seen_after = numbers.observations(spec, STEPS)
    draws = numbers.normal(STEPS, axes) if axes else None
    choices = numbers.choices(branches, masks, STEPS) if branches else None
    rewards, terminated = numbers.normal(STEPS, SIGNALS), (numbers.below(4, STEPS) == 0).float()
    batch = ReplayBatch(
        observations,
        seen_after,
        draws,
        None if draws is None else torch.tanh(draws),
        choices,
        masks,
        after,
        rewards,
        torch.tensor([0.9, 0.5]) - terminated.unsqueeze(1) * torch.tensor([0.9, 0.0]),
        remembered,
    )
    return ReplayCase(networks, batch)
