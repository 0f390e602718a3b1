"""Tests the pretended device."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import adam

from learner.training.buffers import sequences
from learner.training.networks.distributions import branch_offsets
from learner.training.trainers.actor_critic import experience
from tests.tools.gpu import waits
from tests.tools.gpu.cases import Case, record
from tests.tools.gpu.check import Setup
from tests.tools.gpu.devices import CPU
from tests.tools.gpu.pretended import PRETENDED, MixedDevicesError, PretendedDevice, WaitError, is_there


def test_what_is_made_or_taken_there_is_there_and_so_is_what_comes_of_it() -> None:
    """Tensors made or copied there, and results of them, are there; copies to the host are not, and share no memory."""
    layer = nn.Linear(2, 3)
    array = np.zeros(2)
    with PretendedDevice():
        values = torch.ones(4, 2, device=PRETENDED)
        found = layer.to(PRETENDED)(values)
        (gradient,) = torch.autograd.grad(found.sum(), [layer.weight])
        there = [
            values,
            found,
            gradient,
            layer.weight,
            found[0],
            torch.zeros(1, device=found.device),
            found.split(2)[0],
        ]
        assert all(is_there(each) for each in there)
        assert found.device == PRETENDED
        assert found.cpu().device == CPU
        assert not is_there(found.detach().to("cpu"))
        copied = torch.from_numpy(array).to(PRETENDED, non_blocking=True)
        back = copied.cpu()
        copied += 1.0
    assert array.tolist() == back.tolist() == [0.0, 0.0]


def test_both_sides_do_not_meet() -> None:
    """Operations on tensors of both sides raise, except for single numbers of the host."""
    with PretendedDevice():
        values, index = torch.ones(4, device=PRETENDED), torch.tensor([0, 1])
        with pytest.raises(MixedDevicesError, match=r"index_select .*: \[4\] device, \[2\] host"):
            values.index_select(0, index)
        with pytest.raises(MixedDevicesError):
            torch.cat((values, torch.ones(1)))
        with pytest.raises(MixedDevicesError, match="numpy cannot see"):
            values.numpy()
        assert is_there(values + torch.tensor(1.0))
        assert is_there(values.index_select(0, index.to(PRETENDED)))


@pytest.mark.parametrize(
    "wait",
    [
        lambda values: values.sum().item(),
        lambda values: values.tolist(),
        lambda values: bool(values.isfinite().all()),
        lambda values: float(values.sum()),
        lambda values: values.cpu(),
        lambda values: values[values > 0],
        lambda values: values[torch.zeros((), dtype=torch.int64, device=PRETENDED)],
        lambda values: torch.ones(3).to(PRETENDED),
        lambda values: torch.tensor([1, 2], device=PRETENDED),
        lambda values: values.copy_(torch.ones(3)),
    ],
)
def test_reads_and_copies_wait(wait: waits.Watch) -> None:
    """Reads and copies are counted as waits, and raise where waits are errors."""
    with PretendedDevice() as device:
        values = torch.ones(3, device=PRETENDED)
        with device.waits_are_errors():
            torch.ones(3).to(PRETENDED, non_blocking=True)
            values.copy_(torch.ones(3), non_blocking=True)
            with pytest.raises(WaitError):
                wait(values)  # type: ignore[call-arg]
        assert not device.waits
        wait(values)  # type: ignore[call-arg]
        assert sum(device.waits.values()) == 1


@pytest.mark.parametrize(
    ("hyper", "waits_once"),
    [({"learning_rate_schedule": "adaptive", "weight_decay": 0.1}, False), ({"target_kl": 0.01}, True)],
)
def test_an_adaptive_rate_does_not_wait_and_a_target_does(
    hyper: dict[str, object], waits_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adaptive rate changes on the device; `target_kl` is compared on the host, as its description says."""
    settings = Case.settings

    def changed(case: Case, folder: Path) -> dict[str, Any]:
        made = settings(case, folder)
        return {**made, "hyperparameters": {**made["hyperparameters"], **hyper}}

    def with_rate_of_the_host(*arguments: Any, lr: Any, **options: Any) -> None:
        assert is_there(lr) is (not waits_once)
        adam.adam(*arguments, lr=1e-3, **options)

    monkeypatch.setattr(Case, "settings", changed)
    case = Case("ppo", "vector")
    chunks = record(case, tmp_path, 3).chunks
    # torch compares the device of the rate with the real one of the parameters, and would copy it.
    monkeypatch.setattr("learner.training.optimizers.adam.adam", with_rate_of_the_host)
    with PretendedDevice() as device, pytest.raises(WaitError) if waits_once else nullcontext():
        assert waits.watched(case, PRETENDED, Setup(PRETENDED, tmp_path), chunks, device.waits_are_errors) == 2


@pytest.mark.parametrize(
    ("kind", "planted", "found"),
    [
        ("memory", (sequences, "to_device", lambda array, place: torch.from_numpy(array).to(place)), WaitError),
        ("vector", (experience, "branch_offsets", lambda branches, _: branch_offsets(branches)), MixedDevicesError),
    ],
)
def test_a_planted_fault_is_found(
    kind: str, planted: tuple[Any, str, Any], found: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait in a loop over minibatches, and a tensor that was left on the host, are found."""
    case, device = Case("ppo", kind), PretendedDevice()
    chunks = record(case, tmp_path, 2).chunks
    monkeypatch.setattr(*planted)
    with device, pytest.raises(found):
        waits.watched(case, PRETENDED, Setup(PRETENDED, tmp_path), chunks, device.waits_are_errors)
