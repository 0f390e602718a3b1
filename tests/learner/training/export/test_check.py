"""Tests the check at the start, which compares the exported file with the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import ObservationKind, Squash
from rollcast.policies import PolicyAssembler, frames
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from torch import Tensor

from learner.link.to_front import Policy, ToFront
from learner.shared.exits import ExitCode
from learner.shared.settings.network import NetworkSettings
from learner.training.export.check import PolicyCheckFailed, check_export, open_session, random_inputs, random_state
from learner.training.export.describe import Progress, describe
from learner.training.export.onnx import PolicyExporter
from learner.training.export.publisher import PolicyPublisher
from learner.training.networks.attention import PADDING_BELOW
from learner.training.networks.normalizer import Normalizer
from learner.training.networks.policy import PolicyNetwork

SPEC = BehaviorSpec(
    "Walker",
    (ObservationSpec("vector", np.dtype("float32"), (5,)),),
    ActionSpec(continuous_size=2, discrete_branches=(3, 2)),
)
CROWDED = BehaviorSpec(
    "Crowded", (ObservationSpec("crowd", np.dtype("float32"), (9, 3), ObservationKind.ENTITIES),), ActionSpec(2)
)
SETTINGS = NetworkSettings(hidden_units=8, normalize=True)


def exporter_of(network: PolicyNetwork) -> PolicyExporter:
    """Exports a network."""
    return PolicyExporter(network, describe(network, behavior_index=0, generation=1))


class FrozenWeight(PolicyNetwork):
    """A network whose mean has a constant traced factor."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Reads a weight with Python."""
        layer = next(module for module in self.modules() if isinstance(module, torch.nn.Linear))
        mean, *others = super().forward(observations, action_masks)
        assert mean is not None
        return (mean * float(layer.bias.sum() + 1.0), *others)


class FrozenNormalizer(PolicyNetwork):
    """A network whose observations are shifted by a constant traced statistic."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Reads a buffer with Python."""
        normalizer = next(module for module in self.modules() if isinstance(module, Normalizer))
        return super().forward([observations[0] - float(normalizer.mean[0])], action_masks)


class FrozenBatch(PolicyNetwork):
    """A network with a constant traced batch size."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Writes the batch size down."""
        mean, log_std, logits, memory = super().forward(observations, action_masks)
        assert log_std is not None
        return (mean, log_std.expand(int(observations[0].shape[0]), 2), logits, memory)


class FrozenMasks(PolicyNetwork):
    """A network that reads its masks in Python and therefore not in the graph."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Skips the masks when they allow everything."""
        return super().forward(observations, None if bool(action_masks.bool().all()) else action_masks)


def test_padding_is_part_of_the_check() -> None:
    """Random lists in the check include padding and empty lists."""
    for batch_size in (1, 7):
        (lists,) = random_inputs(CROWDED, 0, batch_size, np.random.default_rng(batch_size)).values()
        padded = (np.square(lists).sum(2) < PADDING_BELOW).sum(1)
        assert (padded < 9).sum() >= max(1, batch_size - 2)
        assert padded.max() > 0
        assert (padded == 9).any() == (batch_size > 1)


@pytest.mark.parametrize(
    ("network_type", "named"),
    [
        (FrozenWeight, "'mean' at batch size 1: by up to"),
        (FrozenNormalizer, "by up to"),
        (FrozenMasks, "'logits' at batch size"),
        (FrozenBatch, "."),
    ],
)
def test_what_was_frozen_while_tracing_is_found(network_type: type[PolicyNetwork], named: str) -> None:
    """A weight, statistic, mask or batch size that became a constant is an error with the output's name."""
    torch.manual_seed(0)
    exporter = exporter_of(network_type(SPEC, SETTINGS))
    with pytest.raises(PolicyCheckFailed, match=named) as caught:
        exporter.verify()
    assert caught.value.exit_code == ExitCode.POLICY_CHECK_FAILED


@pytest.mark.parametrize("entry", sorted(PolicyNetwork(SPEC, SETTINGS).state_dict()))
def test_every_entry_matters(entry: str) -> None:
    """An old value in any parameter or buffer is detected."""
    network = PolicyNetwork(SPEC, SETTINGS)
    exporter = exporter_of(network)
    old = {name: value.clone() for name, value in network.state_dict().items()}

    def stale(state: Mapping[str, Tensor]) -> bytes:
        return exporter.render({**state, entry: old[entry]})

    with pytest.raises(PolicyCheckFailed, match="differs from the network in the output"):
        check_export(network, stale)


@pytest.mark.parametrize(
    "render",
    [lambda state: b"", lambda state: b"no model", lambda state: 1 / 0],
    ids=["empty", "foreign", "failing"],
)
def test_a_file_that_cannot_be_run_is_said_to_be_so(render: Callable[[Any], bytes]) -> None:
    """Errors of ONNX Runtime become one error with the behavior's name."""
    with pytest.raises(PolicyCheckFailed, match="'Walker' cannot be run"):
        check_export(PolicyNetwork(SPEC, SETTINGS), render)


def test_random_states_keep_what_must_be_kept() -> None:
    """Random states change every float, keep integers, and keep non-negative statistics positive."""
    network = PolicyNetwork(SPEC, SETTINGS)
    network.register_buffer("positions", torch.arange(4))
    state = network.state_dict()
    buffers = {name for name, _ in network.named_buffers()}
    changed = random_state(state, buffers, np.random.default_rng(0))
    assert changed.keys() == state.keys()
    assert torch.equal(changed["positions"], torch.arange(4))
    for name, value in state.items():
        if value.is_floating_point():
            assert (changed[name] != value).all(), name
            assert changed[name].dtype == value.dtype
        if name in buffers and name != "positions":
            assert (changed[name] > 0).all(), name


def test_random_masks_leave_a_choice_and_forbid_some() -> None:
    """Random masks allow a choice of each branch, and sometimes forbid all."""
    masks = random_inputs(SPEC, 0, 50, np.random.default_rng(0))["action_masks"]
    assert masks.dtype == np.float32
    assert set(np.unique(masks)) == {0.0, 1.0}
    assert (masks[:, :3].sum(1) >= 1).all()
    assert (masks[:, 3:].sum(1) >= 1).all()
    assert (masks.min(0) == 0).all()


@pytest.fixture
def network() -> PolicyNetwork:
    """Returns a small network."""
    spec = BehaviorSpec("Walker", (ObservationSpec("vector", np.dtype("float32"), (5,)),), ActionSpec(2))
    return PolicyNetwork(spec, NetworkSettings(hidden_units=8))


def test_a_published_version_crosses_the_wire_and_acts(network: PolicyNetwork) -> None:
    """A published version passes header, frames and digest, and runs."""
    sent: list[ToFront] = []
    template = describe(network, behavior_index=3, generation=7, deterministic=True)
    publisher = PolicyPublisher(network, sent.append, template)
    publisher.publish(network.state_dict(), Progress(5, 40, 4000))
    (policy,) = sent
    assert isinstance(policy, Policy)
    stored = policy.stored
    assembler = PolicyAssembler()
    assembler.begin(stored.description.to_message())
    (*_, last) = [assembler.add(frame) for frame in frames(stored.payload)]
    assert last is not None
    description, payload = last
    assert (description.behavior_index, description.generation, description.version) == (3, 7, 5)
    assert (description.optimizer_steps, description.env_steps_trained) == (40, 4000)
    assert description.deterministic
    assert description.action_transform.squash is Squash.CLIP3_DIV3
    outputs = open_session(payload).run(list(description.outputs), {"obs_0": np.zeros((4, 5), np.float32)})
    assert [output.shape for output in outputs] == [(4, 2), (4, 2)]


def test_the_newest_version_is_sent_again_to_be_kept(network: PolicyNetwork) -> None:
    """The newest version can be published again with equal header and bytes."""
    sent: list[ToFront] = []
    publisher = PolicyPublisher(network, sent.append, describe(network, behavior_index=0, generation=1))
    publisher.keep()
    assert sent == []
    header = publisher.publish(network.state_dict(), Progress(2, 40, 4000, uniform=True))
    assert header.uniform
    publisher.keep()
    first, again = sent
    assert isinstance(first, Policy)
    assert first.stored.description == header
    assert (first.keep, again) == (False, replace(first, keep=True))
