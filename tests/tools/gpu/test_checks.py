"""Runs every check of the GPU suite on the CPU, where both sides must be equal, and tests what the checks compute."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from tests.tools.command import chosen
from tests.tools.gpu import cli
from tests.tools.gpu.agreement import deviations
from tests.tools.gpu.cases import TRAINERS, Case, record, start
from tests.tools.gpu.catalog import CHECKS
from tests.tools.gpu.check import Check, Outcome, Setup
from tests.tools.gpu.devices import CPU, allocated_bytes
from tests.tools.gpu.host_random import HostRandom
from tests.tools.gpu.occupancy import mean_share
from tests.tools.gpu.updates import TOLERANCES, deviation


@pytest.mark.timeout(400)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_it_holds_on_a_cpu(check: Check, tmp_path: Path) -> None:
    """The check passes on a CPU and reports finite figures in one line."""
    outcome = check.run(Setup(CPU, tmp_path, rounds=2, seconds=0.05, shrinks=True))
    assert outcome.held, outcome.text
    assert "\n" not in outcome.text
    assert outcome.figures
    assert all(math.isfinite(value) for value in outcome.figures.values())


def _breaks(setup: Setup) -> Outcome:
    raise RuntimeError("the first line\nthe second line")


def test_a_check_that_breaks_off_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed check is a line and exit status 1, the others still run; a beginning of names chooses, an unknown one is an error."""
    holds = Check("holds", "nothing", lambda _: Outcome(held=True, text="fine", figures={"rows": 3.0}))
    options = cli._parser().parse_args(["--device", "cpu", "--out", str(tmp_path / "gpu")])
    assert cli._run_all([Check("breaks", "nothing", _breaks), holds], options) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["breaks FAILED RuntimeError: the first line", "holds ok fine"]
    found = json.loads((tmp_path / "gpu" / "gpu.json").read_text(encoding="utf-8"))["checks"]
    assert [(each["check"], each["held"]) for each in found] == [("breaks", False), ("holds", True)]
    assert [check.name for check in chosen(CHECKS, ["replay", "speed"], "check")] == [
        "replay",
        "speed-mlp",
        "speed-nature",
    ]
    assert cli.main(["nothing"]) == 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["staging"]) == cli.NO_CUDA
    assert "no CUDA" in capsys.readouterr().err


def test_states_are_compared_by_part() -> None:
    """The difference is relative to the change, and states of generators do not count."""
    begun = {
        "network": {"a": torch.zeros(2), "b": torch.ones(1)},
        "draws": {"state": torch.zeros(3, dtype=torch.uint8)},
    }
    optimizer = {"first": {"a": torch.ones(1)}}
    reference = {"network": {"a": torch.tensor([3.0, 4.0]), "b": torch.ones(1)}, "optimizer": optimizer}
    found = {"network": {"a": torch.tensor([3.0, 4.5]), "b": torch.ones(1)}, "optimizer": optimizer}
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


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_difference_in_what_is_learned_is_far_beyond_the_tolerance(trainer: str, tmp_path: Path) -> None:
    """Training on other minibatches exceeds the tolerance by far."""
    case = Case(trainer, "vector")
    assert set(deviation(Setup(CPU, tmp_path), case).values()) == {0.0}
    recorded = record(case, tmp_path, 3)
    started = start(case, CPU, tmp_path)
    for generator in (each for each in vars(started.trainer).values() if isinstance(each, torch.Generator)):
        generator.manual_seed(99)
    with HostRandom():
        for chunk in recorded.chunks:
            started.feed(chunk)
    apart = deviations(recorded.trainer.state_dict()["model"], started.trainer.state_dict()["model"], recorded.begun)
    assert max(apart.values()) > 100 * TOLERANCES["vector"]


def test_figures_of_memory_and_load() -> None:
    """A tensor counts once while it is referenced, and the load is the mean of whole lines of nvidia-smi."""
    before = allocated_bytes(CPU)
    held = torch.ones(1000)
    views = [held[:10], held.view(10, 100)]
    assert allocated_bytes(CPU) - before == 4000
    del held, views
    assert allocated_bytes(CPU) == before
    assert mean_share("50\n100\n\n") == 0.75
    assert mean_share("[N/A]\n") is None
