"""Compares the critic of groups with a plain loop over the agents that are present."""

from __future__ import annotations

import math

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.distributions import branch_offsets
from learner.training.networks.group import GroupCritic, Mates, Taken
from tests.learner.training.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID

ROWS, MATES, SIGNALS = 6, 3, 2
PRESENT = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1]], dtype=torch.float32)


def observations(spec: BehaviorSpec, generator: torch.Generator) -> list[Tensor]:
    """Draws observations of an agent and its mates, ``[ROWS, 1 + MATES, *shape]``."""
    found = []
    for part in spec.observations:
        shape = (ROWS, 1 + MATES, *part.shape)
        if part.categories:
            found.append(torch.randint(0, 3, shape, generator=generator))
        else:
            found.append(torch.rand(shape, generator=generator) * (part.scale or 1.0))
    return found


def actions(spec: BehaviorSpec, generator: torch.Generator) -> Taken:
    """Draws actions of mates."""
    branches, size = spec.action.discrete_branches, spec.action.continuous_size
    discrete = [torch.randint(0, count, (ROWS, MATES, 1), generator=generator) for count in branches]
    return Taken(
        torch.randn(ROWS, MATES, size, generator=generator) if size else None,
        torch.cat(discrete, dim=2) + branch_offsets(branches) if branches else None,
    )


def one_hot(spec: BehaviorSpec, action: Taken, row: int, mate: int) -> Tensor:
    """Returns the numbers of one action."""
    parts = [] if action.continuous is None else [action.continuous[row, mate]]
    if action.discrete is not None:
        flat = torch.zeros(sum(spec.action.discrete_branches))
        flat[action.discrete[row, mate]] = 1.0
        parts.append(flat)
    return torch.cat(parts)


def normalized(values: Tensor) -> Tensor:
    """Normalizes each entity."""
    return (values - values.mean(1, keepdim=True)) / (values.var(1, correction=0, keepdim=True) + 1e-5).sqrt()


def plain(critic: GroupCritic, entities: Tensor) -> Tensor:
    """Computes the outputs of one set ``[n, width]`` of agents, head by head of the attention."""
    own = normalized(entities)
    attention, width = critic.attention, entities.shape[1]
    queries, keys, values = attention.query(own), attention.key(own), attention.value(own)
    heads = []
    for part in torch.arange(width).reshape(4, -1):
        weights = torch.softmax(queries[:, part] @ keys[:, part].T / math.sqrt(width), dim=1)
        heads.append(weights @ values[:, part])
    summary = normalized(own + attention.out(torch.cat(heads, dim=1))).mean(0, keepdim=True)
    for layer in critic.layers.linear:
        summary = torch.nn.functional.silu(layer(summary))
    share = 2.0 * len(entities) / float(critic.most_agents) - 1.0
    found: Tensor = critic.head(torch.cat((summary, torch.tensor([[share]])), dim=1))
    return found[0]


@pytest.mark.parametrize("spec", [CONTINUOUS, BRANCHES, HYBRID], ids=lambda spec: spec.name)
@torch.no_grad()
def test_values_and_baselines_equal_a_plain_version(spec: BehaviorSpec) -> None:
    """The value reads all observations; the baseline reads its own, and observations and actions of mates."""
    generator = torch.Generator().manual_seed(1)
    settings = NetworkSettings.model_validate({"hidden_units": 10, "activation": "swish"})
    critic = GroupCritic(spec, settings, SIGNALS, generator)
    seen, taken = observations(spec, generator), actions(spec, generator)
    critic.note_agents(torch.cat((torch.ones(ROWS, 1), PRESENT), dim=1))
    assert float(critic.most_agents) == 4.0
    found = critic.judge([part[:, 0] for part in seen], Mates([part[:, 1:] for part in seen], taken, PRESENT))
    assert found.shape == (ROWS, 2 * SIGNALS)
    for row in range(ROWS):
        encoded = critic.encoder([part[row] for part in seen])
        there = [mate for mate in range(MATES) if PRESENT[row, mate]]
        own = torch.nn.functional.silu(critic.seen(encoded[:1]))
        others = [encoded[1 + mate] for mate in there]
        acted = [torch.cat((encoded[1 + mate], one_hot(spec, taken, row, mate))) for mate in there]
        mates = [torch.nn.functional.silu(critic.seen(one))[None] for one in others]
        acting = [torch.nn.functional.silu(critic.acted(one))[None] for one in acted]
        expected = torch.cat((plain(critic, torch.cat([own, *mates])), plain(critic, torch.cat([own, *acting]))))
        assert found[row].tolist() == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)


@torch.no_grad()
def test_an_agent_alone_needs_no_mates() -> None:
    """Without mates, value and baseline are those of an agent whose mates are absent."""
    generator = torch.Generator().manual_seed(3)
    critic = GroupCritic(BRANCHES, NetworkSettings.model_validate({"hidden_units": 16}), 1, generator)
    seen, taken = observations(BRANCHES, generator), actions(BRANCHES, generator)
    own, others = [part[:, 0] for part in seen], [part[:, 1:] for part in seen]
    first, alone = critic.judge(own, Mates(others, taken, PRESENT)), critic.judge(own, None)
    assert torch.allclose(first[0], alone[0], atol=1e-6)
    assert torch.equal(alone[:, 0], alone[:, 1])
