"""Tests the signals that save a checkpoint and pause a run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollcast.v1 import control_pb2

from learner.common.exits import ExitCode
from learner.identity.audit import AUDIT_FILE
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow

NAME = "CartPole"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def _is_paused(learner: LearnerProcess) -> bool:
    return learner.status().state == control_pb2.RUN_STATE_PAUSED


def test_a_run_is_saved_paused_and_resumed_by_signals(processes: Processes) -> None:
    """SIGUSR1 saves a checkpoint, SIGUSR2 pauses and resumes; each is logged, and recorded in `audit.jsonl`."""
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, checkpoint_seconds=600.0))
    assert learner.address
    learner.signal(signal.SIGUSR1)  # nothing was declared yet
    learner.wait_for(lambda: learner.events("signal_not_done"), "it says that there is nothing to save")
    assert "start an actor" in learner.events("signal_not_done")[0]["error"]

    actor = processes.actor(learner.address, "CartPole-v1")
    learner.wait_for_version(NAME, 2, actor)
    learner.signal(signal.SIGUSR1)
    (saved,) = learner.wait_for(lambda: learner.events("checkpoint_saved"), "a checkpoint by a signal", actor)
    assert Path(saved["path"]).exists()
    assert list((learner.folder / NAME).glob(f"{NAME}-*.pt"))

    learner.signal(signal.SIGUSR2)
    learner.wait_for(lambda: learner.events("paused") and _is_paused(learner), "it pauses", actor)
    version = learner.behavior(NAME).version
    learner.signal(signal.SIGUSR1)  # a run that is paused can be saved
    learner.wait_for(lambda: len(learner.events("checkpoint_saved")) == 2, "a second checkpoint", actor)
    assert learner.behavior(NAME).version == version
    learner.signal(signal.SIGUSR2)
    learner.wait_for(lambda: learner.events("resumed") and not _is_paused(learner), "it goes on", actor)
    assert [each["signal"] for each in learner.events("operator_request")] == ["SIGUSR2", "SIGUSR2"]
    learner.wait_for_version(NAME, version + 2, actor)

    learner.signal(signal.SIGTERM)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert TRACEBACK not in learner.err(), learner.said()
    lines = [json.loads(line) for line in (learner.folder / AUDIT_FILE).read_text().splitlines()]
    assert [(line["action"], line["peer"], line["result"]) for line in lines] == [
        ("save", "SIGUSR1", "NOTHING_TO_SAVE"),
        ("save", "SIGUSR1", "ok"),
        ("pause", "SIGUSR2", "ok"),
        ("save", "SIGUSR1", "ok"),
        ("resume", "SIGUSR2", "ok"),
        ("stop", "SIGTERM", "ok"),
    ]
    assert {(line["via"], line["principal"], line["role"]) for line in lines} == {("signal", None, None)}


def test_a_signal_that_comes_too_early_ends_nothing(processes: Processes) -> None:
    """Both signals are ignored while a learner starts."""
    learner = processes.learner(write_run(processes.folder, {NAME: small()}))

    def ignores() -> bool:
        status = Path(f"/proc/{learner.pid}/status").read_text()
        ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
        return bool(ignored & 1 << signal.SIGUSR1 - 1 and ignored & 1 << signal.SIGUSR2 - 1)

    learner.wait_for(ignores, "it ignores them")
    learner.signal(signal.SIGUSR1)
    learner.signal(signal.SIGUSR2)
    assert learner.address
    assert not _is_paused(learner)


def _hung_up(child: Child, *others: Child) -> None:
    """Sends what a terminal that closes sends, twice as some do."""
    child.signal(signal.SIGHUP)
    child.signal(signal.SIGHUP)
    assert child.wait() == ExitCode.OK, "\n".join(each.said() for each in (child, *others))
    assert TRACEBACK not in child.err(), child.said()


def test_a_closed_terminal_ends_both_sides_in_good_order(processes: Processes) -> None:
    """SIGHUP saves and closes the session, and does not count as a second signal."""
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, checkpoint_seconds=600.0))
    actors = [processes.actor(learner.address, "CartPole-v1", name=name) for name in ("stays", "leaves")]
    learner.wait_for_version(NAME, 2, *actors)
    _hung_up(actors[1])
    learner.wait_for(lambda: not learner.actor("leaves").session_id, "it said farewell", actors[0])
    _hung_up(learner, actors[0])
    assert not learner.events("second_signal")
    assert (learner.folder / "run_state.pt").exists()
    assert (learner.folder / "summary.json").exists()


def test_behind_nohup_it_goes_on(processes: Processes) -> None:
    """A process under nohup ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        learner = processes.learner(write_run(processes.folder, {NAME: small()}))
        actor = processes.actor(learner.address, "CartPole-v1")
    finally:
        signal.signal(signal.SIGHUP, before)
    learner.wait_for_version(NAME, 1, actor)
    learner.signal(signal.SIGHUP)
    actor.signal(signal.SIGHUP)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + 3, actor)
