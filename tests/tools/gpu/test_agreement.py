"""Tests the comparison of two trainers on two devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tools.gpu.agreement import deviations
from tests.tools.gpu.cases import KINDS, TRAINERS, Case, record, start, train
from tests.tools.gpu.check import Setup
from tests.tools.gpu.devices import CPU, allocated_bytes
from tests.tools.gpu.host_random import HostRandom
from tests.tools.gpu.occupancy import mean_share
from tests.tools.gpu.updates import TOLERANCES, deviation


def test_states_are_compared_by_part() -> None:
    """The difference is relative to the change, and states of generators do not count."""
    begun = {
        "network": {"a": torch.zeros(2), "b": torch.ones(1)},
        "draws": {"state": torch.zeros(3, dtype=torch.uint8)},
    }
    reference = {
        "network": {"a": torch.tensor([3.0, 4.0]), "b": torch.ones(1)},
        "optimizer": {"first": {"a": torch.ones(1)}},
    }
    found = {
        "network": {"a": torch.tensor([3.0, 4.5]), "b": torch.ones(1)},
        "optimizer": {"first": {"a": torch.ones(1)}},
    }
    assert deviations(reference, found, begun) == {"network": 0.1, "optimizer/first": 0.0}
    with pytest.raises(ValueError, match="the states differ in optimizer/first/a"):
        deviations(reference, {"network": reference["network"]}, begun)


def test_twins_draw_what_a_generator_of_their_seed_draws() -> None:
    """Each generator's twin draws the same numbers in the same order."""
    ours, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(6)
    with HostRandom():
        found = torch.randperm(9, generator=ours), torch.randn(2, 3, generator=ours, device=CPU)
        torch.randint(4, (3,), generator=other)
    again = torch.Generator().manual_seed(5)
    assert torch.equal(found[0], torch.randperm(9, generator=again))
    assert torch.equal(found[1], torch.randn(2, 3, generator=again))
    assert torch.equal(ours.get_state(), torch.Generator().manual_seed(5).get_state())


def test_a_trainer_learns_what_it_learns_without_twins(tmp_path: Path) -> None:
    """Twins do not change what a trainer learns."""
    case = Case("ppo", "vector")
    recorded = record(case, tmp_path, 3)
    started = start(case, CPU, tmp_path)
    for chunk in recorded.chunks:
        started.feed(chunk)
    reference, found = (each.state_dict()["model"] for each in (recorded.trainer, started.trainer))
    assert set(deviations(reference, found, recorded.begun).values()) == {0.0}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_difference_in_what_is_learned_is_far_beyond_the_tolerance(trainer: str, tmp_path: Path) -> None:
    """Training on other minibatches exceeds the tolerance by far."""
    case = Case(trainer, "vector")
    assert set(deviation(Setup(CPU, tmp_path), case).values()) == {0.0}
    recorded = record(case, tmp_path, 3)
    started = start(case, CPU, tmp_path)
    generators = [each for each in vars(started.trainer).values() if isinstance(each, torch.Generator)]
    for generator in generators:
        generator.manual_seed(99)
    with HostRandom():
        for chunk in recorded.chunks:
            started.feed(chunk)
    apart = deviations(recorded.trainer.state_dict()["model"], started.trainer.state_dict()["model"], recorded.begun)
    assert max(apart.values()) > 100 * TOLERANCES["vector"]


def test_every_kind_has_a_tolerance() -> None:
    """Every kind has its own tolerance."""
    assert TOLERANCES.keys() == KINDS.keys()


def test_a_tensor_counts_while_somebody_holds_it() -> None:
    """A tensor counts once while it is referenced, however many views it has."""
    before = allocated_bytes(CPU)
    held = torch.ones(1000)
    views = [held[:10], held.view(10, 100)]
    assert allocated_bytes(CPU) - before == 4000
    del held, views
    assert allocated_bytes(CPU) == before


def test_the_share_of_a_busy_device_is_the_mean_of_what_nvidia_smi_said() -> None:
    """The load is the mean of nvidia-smi's output; incomplete lines are ignored."""
    assert mean_share("50\n100\n\n") == 0.75
    assert mean_share("[N/A]\n") is None
    assert mean_share("") is None


def test_training_on_recorded_chunks_does_not_change_them(tmp_path: Path) -> None:
    """Training does not change the recorded chunks."""
    case = Case("sac", "vector")
    recorded = record(case, tmp_path, 3)
    copies = [{name: values.copy() for name, values in chunk.columns.items()} for chunk in recorded.chunks]
    train(case, CPU, tmp_path, recorded.chunks)
    for chunk, copy in zip(recorded.chunks, copies, strict=True):
        assert all((chunk.columns[name] == values).all() for name, values in copy.items())
