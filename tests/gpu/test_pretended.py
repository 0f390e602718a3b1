"""A device that is only pretended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from learner.buffers import sequences
from learner.networks.distributions import branch_offsets
from learner.trainers.actor_critic import experience
from tests.gpu import waits
from tests.gpu.cases import Case, record
from tests.gpu.check import Setup
from tests.gpu.devices import CPU
from tests.gpu.pretended import PRETENDED, MixedDevicesError, PretendedDevice, WaitError, is_there


def test_what_is_made_or_taken_there_is_there_and_so_is_what_comes_of_it() -> None:
    """Factories, copies, networks, gradients, views and results; and back on the host they are not."""
    layer = nn.Linear(2, 3)
    with PretendedDevice():
        values = torch.ones(4, 2, device=PRETENDED)
        assert values.device == PRETENDED
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
        back = found.cpu()
        assert not is_there(back)
        assert back.device == CPU
        assert not is_there(found.detach().to("cpu"))


def test_both_sides_do_not_meet() -> None:
    """But for single numbers of the host, which torch allows; numpy sees nothing of the device."""
    with PretendedDevice():
        values, index = torch.ones(4, device=PRETENDED), torch.tensor([0, 1])
        with pytest.raises(
            MixedDevicesError, match=r"index_select was given tensors of both sides: \[4\] device, \[2\] host"
        ):
            values.index_select(0, index)
        with pytest.raises(MixedDevicesError):
            torch.cat((values, torch.ones(1)))
        with pytest.raises(MixedDevicesError, match="numpy cannot see"):
            values.numpy()
        assert is_there(values + torch.tensor(1.0))
        assert is_there(values.index_select(0, index.to(PRETENDED)))


def test_a_copy_leaves_the_other_side_as_it_is() -> None:
    """Memory is not shared, although both are on the CPU."""
    array = np.zeros(2)
    with PretendedDevice():
        there = torch.from_numpy(array).to(PRETENDED, non_blocking=True)
        back = there.cpu()
        there += 1.0
    assert array.tolist() == [0.0, 0.0]
    assert back.tolist() == [0.0, 0.0]


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
    """They are counted, and errors where they are forbidden; a copy that need not wait is none."""
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


def test_a_wait_in_a_loop_over_minibatches_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a copy of indices that is none of `to_device`."""
    case, device = Case("ppo", "memory"), PretendedDevice()
    chunks = record(case, tmp_path, 2).chunks
    monkeypatch.setattr(sequences, "to_device", lambda array, place: torch.from_numpy(array).to(place))
    with device, pytest.raises(WaitError, match="to waits for the device"):
        waits.watched(case, PRETENDED, Setup(PRETENDED, tmp_path), chunks, device.waits_are_errors)


def test_a_tensor_that_was_left_on_the_host_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as offsets that were made without a device."""
    case = Case("ppo", "vector")
    chunks = record(case, tmp_path, 2).chunks
    monkeypatch.setattr(experience, "branch_offsets", lambda branches, _: branch_offsets(branches))
    with PretendedDevice() as device, pytest.raises(MixedDevicesError, match="add was given tensors of both sides"):
        waits.watched(case, PRETENDED, Setup(PRETENDED, tmp_path), chunks, device.waits_are_errors)
