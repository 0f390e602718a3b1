"""Tests that a change of the wall clock does not affect a run."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.shared.observe.address import read_addresses
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run
from tests.exposition import samples
from tests.nightly.chaos.resources import HOUR_SECONDS, WallClock, remove_clock_files

NAME = "CartPole"
LEASE_SECONDS = 4.0


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started
    for child in started._children:
        remove_clock_files(child.pid)


def _hours_off(learner: LearnerProcess) -> float:
    """Returns how far the learner's clock is from ours, by the time of its last update."""
    addresses = read_addresses(learner.folder)
    assert addresses is not None
    with urllib.request.urlopen(f"http://{addresses.http}/metrics", timeout=10) as answer:
        found = samples(answer.read())
    (told,) = [value for (name, _), value in found.items() if name.endswith("_last_update_timestamp_seconds")]
    assert learner.status().generation == 1
    return (told - time.time()) / HOUR_SECONDS


def _goes_on(learner: LearnerProcess, *actors: Child) -> None:
    """Waits until leases would have run out, updates were made, and a checkpoint was saved."""
    state = learner.folder / "run_state.pt"
    saved, version = state.stat().st_mtime_ns, learner.behavior(NAME).version
    until = time.monotonic() + 1.5 * LEASE_SECONDS
    learner.wait_for(lambda: time.monotonic() > until, "leases would have run out", *actors)
    learner.wait_for_version(NAME, version + 3, *actors)
    learner.wait_for(lambda: state.stat().st_mtime_ns > saved, "checkpoints are saved in time", *actors)


def test_a_clock_that_is_set_disturbs_nobody(processes: Processes, tmp_path: Path) -> None:
    """After the clock is set by hours, sessions, leases and checkpoints continue, and no step is lost."""
    clock = WallClock(tmp_path)
    run_file = write_run(processes.folder, {NAME: small()}, lease_seconds=LEASE_SECONDS, checkpoint_seconds=0.5)
    http = ("--set", "rollcast.http_address=127.0.0.1:0")
    learner = processes.learner(run_file, *http, environment=clock.environment)
    actors = [
        processes.actor(learner.address, "CartPole-v1", name=name, environment=clock.environment)
        for name in ("one", "two")
    ]
    learner.wait_for_version(NAME, 2, *actors)
    learner.wait_for((learner.folder / "run_state.pt").exists, "a first checkpoint", *actors)
    sessions = {actor.actor_name: actor.session_id for actor in learner.status().actors}
    for hours in (3, -5, 48, 0):
        clock.set(hours)
        _goes_on(learner, *actors)
        assert abs(_hours_off(learner) - hours) < 0.1, "the learner's clock was set"
        assert {actor.actor_name: actor.session_id for actor in learner.status().actors} == sessions
    books = learner.behavior(NAME).books
    assert not books.lost
    assert {count.reason for count in books.dropped} <= {"stale"}
