"""Tests that parts of installed packages are judged too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rollcast.errors import Untrainable

from learner.shared.settings.options import RunOptions
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.memory_estimate import estimate_memory
from tests.learner.installed import install
from tests.learner.training.networks.specs import behavior, image

ENCODERS = """
    import numpy as np
    import torch
    from torch import nn

    class Filtered(nn.Module):
        def __init__(self, spec, size, initializer):
            super().__init__()
            self.register_buffer("filter", torch.from_numpy(np.ones(spec.size, np.float32)))
            self.scale = torch.ones(spec.size)
            self.dense = initializer.linear(spec.size, size, 1.0)
            self.own = nn.Linear(size, size)

        def forward(self, observation):
            return self.own(self.dense(observation.float().flatten(1) * self.filter))

    class Reading(Filtered):
        def __init__(self, spec, size, initializer):
            super().__init__(spec, size, initializer)
            self.norm = float(self.own.weight.sum())

    class Whole(Filtered):
        def forward(self, observation):
            return super().forward(observation).long()
    """
TRAINERS = """
    from torch import nn
    from learner.shared.settings.hyperparameters import ReplayHyperparameters
    from learner.training.trainers.off_policy import OffPolicyTrainer

    class Nothing(OffPolicyTrainer):
        settings_model = ReplayHyperparameters

        @classmethod
        def build_networks(cls, spec, settings, generator):
            return None

    class Faulty(Nothing):
        @classmethod
        def build_networks(cls, spec, settings, generator):
            return spec.nothing

    class Leaving(Nothing):
        @classmethod
        def build_networks(cls, spec, settings, generator):
            raise SystemExit(3)
    """
SPEC = behavior(image(shape=(20, 20, 3)), branches=(2,))


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoders = {name.lower(): f"judged_encoders:{name}" for name in ("Filtered", "Reading", "Whole")}
    trainers = {name.lower(): f"judged_trainers:{name}" for name in ("Nothing", "Faulty", "Leaving")}
    monkeypatch.syspath_prepend(str(install(tmp_path, "judged_encoders", ENCODERS, {"rollcast.encoders": encoders})))
    monkeypatch.syspath_prepend(str(install(tmp_path, "judged_trainers", TRAINERS, {"rollcast.trainers": trainers})))


def options(encoder: str) -> RunOptions:
    """Returns a run file with an encoder of the package."""
    block = {"network_settings": {"vis_encode_type": encoder, "hidden_units": 64}}
    return RunOptions.model_validate({"behaviors": {"Test": block}})


def test_an_encoder_of_a_package_is_counted() -> None:
    """Layers of a package's encoder are counted."""
    run = options("filtered")
    found = estimate_memory(SPEC, run.behaviors["Test"], run.rollcast)
    policy = PolicyNetwork(SPEC, run.behaviors["Test"].network_settings, torch.Generator().manual_seed(1))
    assert found.policy_bytes == 4 * sum(value.numel() for value in policy.parameters())
    assert found.batch_bytes > 1024 * 4 * 20 * 20 * 3


def test_an_encoder_that_reads_its_weights_is_refused_in_one_line() -> None:
    """An encoder that reads values of its weights is refused in one line."""
    run = options("reading")
    with pytest.raises(
        Untrainable, match=r"Test: network_settings.vis_encode_type names 'reading', which failed: "
    ) as found:
        estimate_memory(SPEC, run.behaviors["Test"], run.rollcast)
    assert "\n" not in found.value.message


def test_an_encoder_that_makes_something_else_is_refused() -> None:
    """An encoder with a wrong output is refused with what it returned and must return."""
    run = options("whole")
    with pytest.raises(Untrainable, match=r"into \[2, 64\] torch.int64: the result must be \[2, 64\] torch.float32"):
        estimate_memory(SPEC, run.behaviors["Test"], run.rollcast)


@pytest.mark.parametrize(
    ("trainer", "fault"),
    [
        ("nothing", "build_networks returned a value of type NoneType"),
        ("faulty", "build_networks failed: AttributeError"),
        ("leaving", "build_networks failed: SystemExit: 3"),
    ],
)
def test_a_trainer_whose_networks_cannot_be_judged_is_refused_in_one_line(trainer: str, fault: str) -> None:
    """A trainer whose networks cannot be judged is refused in one line, without retries of the actor."""
    run = RunOptions.model_validate({"behaviors": {"Test": {"trainer_type": trainer}}})
    with pytest.raises(Untrainable) as found:
        estimate_memory(SPEC, run.behaviors["Test"], run.rollcast)
    assert f"Test: trainer_type names {trainer!r}, whose {fault}" in found.value.message
    assert "\n" not in found.value.message
