"""Tests bodies and policies of the user in networks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rollcast.errors import Untrainable
from torch import nn

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rewards import GAILSettings
from learner.training.export.check import PolicyCheckFailed
from learner.training.export.describe import describe
from learner.training.export.onnx import PolicyExporter
from learner.training.networks.observing import AddedBody
from learner.training.networks.policy import PolicyNetwork, build_policy
from learner.training.networks.squashed import SquashedPolicyNetwork
from learner.training.rewards.gail import Discriminator
from learner.training.rewards.learned import SignalSetup
from learner.training.trainers import registry
from learner.training.trainers.memory_estimate import estimate_memory
from learner.training.trainers.normalization import normalizing_encoders
from tests.learner.training.networks.specs import behavior, image, vector

MODULE = "networks_of_a_test"
TEXT = """
import torch
from torch import nn
from learner.training.networks.encoders import ObservationEncoder
from learner.training.networks.policy import PolicyNetwork

class Body(nn.Module):
    def __init__(self, specs, settings, initializer):
        super().__init__()
        self.encoder = ObservationEncoder(specs, settings, initializer)
        self.layer = initializer.linear(self.encoder.size, 7, 1.0)

    def forward(self, observations):
        return self.layer(self.encoder(list(observations))).tanh()

class Branching(Body):
    def forward(self, observations):
        found = super().forward(observations)
        return found * 2 if observations[0].any() else found

class Unknown(Body):
    def forward(self, observations):
        return torch.fft.fft(super().forward(observations)).real.float()

class Lists(Body):
    def forward(self, observations):
        return [super().forward(observations)]

class Short(Body):
    def forward(self, observations):
        return super().forward(observations)[:1]

class Reading(Body):
    def forward(self, observations):
        return super().forward(observations) * float(self.layer.weight.sum())

class Policy(PolicyNetwork):
    def __init__(self, spec, settings, generator=None):
        super().__init__(spec, settings, generator)
        self.last = nn.Linear(self.body.size, self.body.size)

    def act(self, hidden, action_masks):
        return super().act(self.last(hidden), action_masks)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{MODULE}.py").write_text(TEXT)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(MODULE, None)


def options(trainer: str = "ppo", name: str = "Body", **network: Any) -> RunOptions:
    """Returns a run file with a body."""
    block = {"hidden_units": 16, "body": f"{MODULE}:{name}", **network}
    return RunOptions.model_validate({"behaviors": {"Test": {"trainer_type": trainer, "network_settings": block}}})


def bodies(network: nn.Module) -> list[AddedBody]:
    """Returns the user's bodies in a network."""
    return [module for module in network.modules() if isinstance(module, AddedBody)]


@pytest.mark.parametrize("memory", [None, {"memory_size": 8, "sequence_length": 4}])
@pytest.mark.parametrize(
    ("trainer", "actions", "count"),
    [
        ("ppo", {"branches": (3, 2)}, 2),
        ("appo", {"continuous": 2, "branches": (2,)}, 2),
        ("poca", {"branches": (3,)}, 2),
        ("sac", {"continuous": 2}, 3),
        ("sac", {"branches": (3,)}, 3),
    ],
)
def test_every_trainer_takes_a_body(trainer: str, actions: Any, count: int, memory: Any) -> None:
    """Policy and critics have one, behind which memory and heads follow; it is counted, and exported as the network is."""
    run = options(trainer, memory=memory, policy=None)
    spec = behavior(vector(), image(shape=(20, 20, 3)), **actions)
    settings = run.behaviors["Test"]
    kind: Any = registry.find(trainer)
    network = kind.build_networks(spec, settings, torch.Generator().manual_seed(1))
    found = bodies(network)
    assert (len(found), {body.size for body in found}) == (count, {7})
    assert estimate_memory(spec, settings, run.rollcast).policy_bytes == 4 * sum(
        value.numel() for value in network.policy.parameters()
    )
    policy: PolicyNetwork = network.policy
    assert policy.memory_size == (0 if memory is None else 8)
    exporter = PolicyExporter(policy, describe(policy, behavior_index=0, generation=1))
    exporter.verify()
    exporter.render(policy.state_dict())


def test_a_body_has_the_normalizers_of_what_it_reads() -> None:
    """An encoder in it knows only these observations, and is normalized by their statistics, not by those of others."""
    settings = NetworkSettings.model_validate(
        {"body": f"{MODULE}:Body", "normalize": True, "critic_only": ["secret"], "hidden_units": 8}
    )
    spec = behavior(vector("secret", 2), vector("state", 4), branches=(2,))
    policy = PolicyNetwork(spec, settings)
    assert [(index, encoder.size) for index, encoder in normalizing_encoders(policy)] == [(1, 4)]


def test_reward_signals_take_a_body() -> None:
    """A signal that has encoders of its own reads by the body, too."""
    network = NetworkSettings.model_validate({"body": f"{MODULE}:Body"})
    setup = SignalSetup(behavior(branches=(2,)), torch.Generator(), torch.device("cpu"))
    made = Discriminator(GAILSettings(demo_path="none", network_settings=network), setup)
    assert [body.size for body in bodies(made)] == [7]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Lists", "into a value of type list: the result must be [2, any width] torch.float32"),
        ("Short", "which turns [[2, 4]] into [1, 7] torch.float32"),
        ("Reading", "which failed: "),
    ],
)
def test_a_body_that_cannot_be_used_is_one_line(name: str, said: str) -> None:
    """What it returns, or that it reads values where there are none, is told to the actor."""
    run = options(name=name)
    with pytest.raises(Untrainable) as caught:
        estimate_memory(behavior(branches=(2,)), run.behaviors["Test"], run.rollcast)
    assert f"Test: network_settings.body names '{MODULE}:{name}'" in caught.value.message
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["Branching", "Unknown"])
def test_a_body_that_cannot_be_exported_is_named(name: str) -> None:
    """Whether the export fails, or computes something else, the line has the class and what it must do."""
    network = PolicyNetwork(behavior(branches=(2,)), options(name=name).behaviors["Test"].network_settings)
    with pytest.raises(PolicyCheckFailed) as caught:
        PolicyExporter(network, describe(network, behavior_index=0, generation=1)).verify()
    assert f"of the run file's own code it has {MODULE}:{name}, which may use only operations" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_policy_of_the_user_takes_the_trainers_place() -> None:
    """It is the policy of the networks, and of one that only acts; a trainer that needs another kind refuses it."""
    spec = behavior(continuous=2)
    network = NetworkSettings.model_validate({"policy": f"{MODULE}:Policy", "hidden_units": 8})
    policy = build_policy(PolicyNetwork, spec, network)
    assert type(policy).__name__ == "Policy"
    exporter = PolicyExporter(policy, describe(policy, behavior_index=0, generation=1))
    exporter.verify()
    with pytest.raises(
        UserError, match=r"makes a Policy: with this trainer it must be a .*SquashedPolicyNetwork"
    ) as caught:
        build_policy(SquashedPolicyNetwork, spec, network)
    assert caught.value.exit_code is ExitCode.RUN_FILE


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"network_settings": {"body": "a:B", "tower": {}}}, "a tower and a body, which exclude each other"),
        (
            {"reward_signals": {"rnd": {"network_settings": {"policy": "a:B"}}}},
            "has a policy, but a reward signal has none",
        ),
    ],
)
def test_settings_that_exclude_each_other(block: Any, said: str) -> None:
    """They are refused before the code is looked for."""
    with pytest.raises(ValueError, match=said):
        RunOptions.model_validate({"behaviors": {"Test": block}})
