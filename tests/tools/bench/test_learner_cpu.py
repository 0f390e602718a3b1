"""Tests the measured span of a run, the command lines of both sides, and short runs of the real commands."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from learner.trainers import replay
from tests.tools.bench.callback.learner_clock import FILE, LearnerClock, clock_by_updates
from tests.tools.bench.cpu_table import comparisons, render
from tests.tools.bench.learner_cpu import (
    CPU_SECONDS,
    ROWS,
    STEPS,
    TRAINED_SHARE,
    UPDATES,
    LearnerCPU,
    Row,
    Side,
    actor_command,
    against_name,
    contestants,
    learner_command,
    read_clock,
    split_cores,
)
from tests.tools.bench.measurement import STEPS_PER_SECOND, MeasurementFailed, Series
from tests.tools.bench.processes import REPOSITORY
from tests.tools.bench.rounds import measure
from tests.tools.bench.workplace import Workplace

BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Update:
    """The fields of an update event."""

    version: int
    env_steps_trained: int


@dataclass(frozen=True)
class End:
    """The fields of an end event."""

    folder: Path


def _work(seconds: float) -> None:
    while time.thread_time() < seconds:
        pass


def test_the_clock_counts_all_threads_and_no_sleep(tmp_path: Path) -> None:
    """The clock includes all threads and system time, but not sleep."""
    clock = LearnerClock()
    before = os.times()
    clock.on_update(Update(1, 1000))
    thread = threading.Thread(target=_work, args=(0.1,))
    thread.start()
    thread.join()
    clock.on_update(Update(2, 2000))
    time.sleep(0.2)
    clock.on_update(Update(3, 3000))
    after = os.times()
    clock.on_end(End(tmp_path))
    first, second, third = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    assert [mark[:2] for mark in (first, second, third)] == [[1, 1000], [2, 2000], [3, 3000]]
    assert second[2] - first[2] >= 0.1
    assert third[2] - second[2] < third[3] - second[3]
    tick = 1.0 / os.sysconf("SC_CLK_TCK")
    assert third[2] - first[2] <= after.user - before.user + after.system - before.system + 2 * tick


def test_a_replay_trainer_broadcasts_by_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay trainer broadcasts after a number of updates, not by the clock."""
    monkeypatch.setattr(replay, "PUBLISH_SECONDS", replay.PUBLISH_SECONDS)
    assert isinstance(clock_by_updates(), LearnerClock)
    assert replay.PUBLISH_SECONDS > 1e6


def test_the_warm_up_does_not_count(tmp_path: Path) -> None:
    """The measured span starts with the first update after a tenth of the steps."""
    marks = [[1, 4000, 90.0, 5.0], [3, 10_000, 100.0, 10.0], [5, 20_000, 100.2, 10.5], [43, 100_000, 101.8, 12.0]]
    (tmp_path / FILE).write_text(json.dumps(marks), encoding="utf-8")
    values = read_clock(tmp_path / FILE).values
    assert values[STEPS] == 90_000
    assert values[CPU_SECONDS] == pytest.approx(2.0)
    assert values[UPDATES] == pytest.approx(43)
    assert values[STEPS_PER_SECOND] == pytest.approx(45_000)


def test_steps_of_a_replay_memory_follow_from_their_updates(tmp_path: Path) -> None:
    """Steps of a replay trainer count by its updates, not by the contents of its memory."""
    marks = [[80, 200, 10.0, 1.0], [100, 264, 10.0, 2.0], [1000, 2000, 12.0, 4.0]]
    (tmp_path / FILE).write_text(json.dumps(marks), encoding="utf-8")
    values = read_clock(tmp_path / FILE, steps_per_update=2).values
    assert values[STEPS] == 2 * 920
    assert values[CPU_SECONDS] == pytest.approx(2.0 / 0.0184)
    assert values[UPDATES] == 50_000


@pytest.mark.parametrize("marks", [[], [[1, 4000, 1.0, 1.0]]])
def test_too_short_a_run_says_what_to_do(tmp_path: Path, marks: list[list[float]]) -> None:
    """A run with a single update is an error with the next step."""
    (tmp_path / FILE).write_text(json.dumps(marks), encoding="utf-8")
    with pytest.raises(
        MeasurementFailed, match=f"{len(marks)} updates are too few to measure; give the run more steps"
    ):
        read_clock(tmp_path / FILE)


def test_a_run_without_a_clock_is_a_failure(tmp_path: Path) -> None:
    """A run without the clock's file is an error."""
    with pytest.raises(MeasurementFailed, match="the learner left no"):
        read_clock(tmp_path / FILE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_both_sides_do_the_same_work(row: Row, tmp_path: Path) -> None:
    """The command lines of both sides differ only in the interpreter, and no run ends early."""
    here, other = Side.here(), Side("other", tmp_path, tmp_path / "python")
    ours, theirs = learner_command(row, here, seed=7), learner_command(row, other, seed=7)
    assert ours[1:] == theirs[1:]
    assert (ours[0], theirs[0]) == (sys.executable, str(other.python))
    assert actor_command(row, here)[1:] == actor_command(row, other)[1:]
    assert {f"behaviors.{row.behavior}.max_steps={row.steps}", "rollcast.target_return=null"} <= set(ours)
    assert {"rollcast.torch_threads=1", "7"} <= set(ours)
    assert (REPOSITORY / row.run_file).exists()


def test_the_sides_of_a_row_follow_each_other(tmp_path: Path) -> None:
    """The sides of a row follow each other, and an empty selection means all rows."""
    found = contestants(Workplace(tmp_path), ["catch", "cartpole-fast"], None)
    assert [each.name for each in found] == ["cartpole-fast", "catch"]
    assert len(contestants(Workplace(tmp_path), [], None)) == len(ROWS)


def test_learner_and_actors_share_no_core() -> None:
    """Learner and actors run on different cores, if there are several."""
    learner, actors = split_cores()
    assert (learner is None) == (len(os.sched_getaffinity(0)) == 1)
    assert learner is None or actors is None or (len(learner) == 1 and not learner & actors)


def test_a_folder_without_an_environment_is_refused(tmp_path: Path) -> None:
    """A folder without an environment is refused with the next step."""
    with pytest.raises(MeasurementFailed, match=r"\.venv/bin/python does not exist; run `make venv` in"):
        contestants(Workplace(tmp_path / "out"), [], tmp_path)


def test_an_environment_of_another_checkout_is_refused(tmp_path: Path) -> None:
    """An environment that imports another checkout is refused."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(MeasurementFailed, match=r"imports .*actor_client, which is not in .*; run `make venv` there"):
        Side.at(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("pendulum-sac", 1000), ("catch", 4000)])
def test_a_short_run_is_measured(name: str, steps: int, tmp_path: Path) -> None:
    """All steps are taken, and the clock has recorded the updates."""
    row = replace(BY_NAME[name], steps=steps)
    values = LearnerCPU(Workplace(tmp_path), row, Side.here(), name).measure(0).values
    assert 0 < values[STEPS] < steps
    assert values[CPU_SECONDS] > 0
    assert values[UPDATES] > 0
    assert 0 < values[TRAINED_SHARE] <= 1


@pytest.mark.slow
def test_a_checkout_compares_with_itself(tmp_path: Path) -> None:
    """A pair of short runs gives a ratio for the table and the JSON file."""
    workplace, row = Workplace(tmp_path), replace(BY_NAME["cartpole-fast"], steps=20_000)
    sides = [(Side.here(), row.name), (replace(Side.here(), name="again"), against_name(row))]
    results: dict[str, Series] = {}
    measure([LearnerCPU(workplace, row, side, name) for side, name in sides], 1, results, print, idle_seconds=0.0)
    assert not any(series.failures for series in results.values())
    assert comparisons(results)[row.name]["of_pairs"]["count"] == 1
    assert f"{comparisons(results)[row.name]['of_medians']:.3f} x" in render(results)
