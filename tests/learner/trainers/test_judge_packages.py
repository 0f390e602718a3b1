"""What installed packages add is judged with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rollcast.errors import Untrainable

from learner.networks.policy import PolicyNetwork
from learner.settings.options import RunOptions
from learner.trainers.judge import judge
from tests.learner.installed import install
from tests.learner.networks.specs import behavior, image

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
    """
SPEC = behavior(image(shape=(20, 20, 3)), branches=(2,))


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"filtered": "judged_encoders:Filtered", "reading": "judged_encoders:Reading"}
    monkeypatch.syspath_prepend(str(install(tmp_path, "judged_encoders", ENCODERS, {"rollcast.encoders": names})))


def options(encoder: str) -> RunOptions:
    """A run file with an encoder of the package."""
    block = {"network_settings": {"vis_encode_type": encoder, "hidden_units": 64}}
    return RunOptions.model_validate({"behaviors": {"Test": block}})


def test_an_encoder_of_a_package_is_counted() -> None:
    """Its layers, whichever way they were made; what it read from elsewhere moves with it."""
    run = options("filtered")
    found = judge(SPEC, run.behaviors["Test"], run.rollcast)
    policy = PolicyNetwork(SPEC, run.behaviors["Test"].network_settings, torch.Generator().manual_seed(1))
    assert found.policy_bytes == 4 * sum(value.numel() for value in policy.parameters())
    assert found.batch_bytes > 1024 * 4 * 20 * 20 * 3


def test_an_encoder_that_reads_its_weights_is_refused_in_one_line() -> None:
    """Those that are judged have none; the message names it."""
    run = options("reading")
    with pytest.raises(
        Untrainable, match=r"Test: network_settings.vis_encode_type names 'reading', which failed: "
    ) as found:
        judge(SPEC, run.behaviors["Test"], run.rollcast)
    assert "\n" not in found.value.message
