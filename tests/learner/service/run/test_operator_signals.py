"""Tests the signals that save a checkpoint and pause a run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from rollcast.errors import NothingToSave
from structlog.testing import capture_logs

from learner.service.identity.audit import AUDIT_FILE, Audit
from learner.service.run.control import OperatorSignals
from learner.shared.exits import ExitCode
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.runs import small, write_run

NAME = "CartPole"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def _is_paused(learner: LearnerProcess) -> bool:
    return learner.status().state == "RUN_STATE_PAUSED"


def test_a_run_is_saved_paused_and_resumed_by_signals(tmp_path: Path) -> None:
    """SIGUSR1 saves a checkpoint, SIGUSR2 pauses and resumes; each is recorded, and afterwards both are ignored."""
    control, audit = Mock(is_paused=False), Audit(tmp_path)
    control.save_checkpoint.side_effect = [NothingToSave("start an actor"), KeyError("a bug"), "/there"]
    control.pause.side_effect = lambda: setattr(control, "is_paused", True)

    def lines() -> list[dict[str, str]]:
        path = tmp_path / AUDIT_FILE
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    with capture_logs() as logs, OperatorSignals(control, audit).listening():
        for number in [signal.SIGUSR1] * 3 + [signal.SIGUSR2] * 2:
            signal.raise_signal(number)
        wait_until(lambda: len([line for line in lines() if line["result"] == "ok"]) == 3, "all are carried out")
    audit.close()
    assert [(line["action"], line["peer"], line["via"]) for line in lines() if line["result"] == "ok"] == [
        ("save", "SIGUSR1", "signal"),
        ("pause", "SIGUSR2", "signal"),
        ("resume", "SIGUSR2", "signal"),
    ]
    assert lines()[0]["result"] == "NOTHING_TO_SAVE"
    events = [line["event"] for line in logs]
    assert events[:3] == ["signal_not_done", "signal_failed", "checkpoint_saved"]
    assert signal.getsignal(signal.SIGUSR1) == signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_closed_terminal_ends_both_sides_in_good_order(processes: Processes) -> None:
    """SIGHUP saves and closes the session, also of a paused run, and does not count as a second signal."""
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, checkpoint_seconds=600.0))
    actors = [processes.actor(learner.address, "CartPole-v1", name=name) for name in ("stays", "leaves")]
    learner.wait_for_version(NAME, 2, *actors)
    learner.signal(signal.SIGUSR1)
    learner.wait_for(lambda: learner.events("checkpoint_saved"), "a checkpoint by a signal", *actors)
    learner.signal(signal.SIGUSR2)
    learner.wait_for(lambda: _is_paused(learner), "it pauses", *actors)
    _hung_up(actors[1])
    learner.wait_for(lambda: not learner.actor("leaves").session_id, "it said farewell", actors[0])
    _hung_up(learner, actors[0])
    assert not learner.events("second_signal")
    assert (learner.folder / "run_state.pt").exists()
    assert (learner.folder / "summary.json").exists()
