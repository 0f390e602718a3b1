"""Tests how signals end a learner process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.service.run.stopping import ECHO_SECONDS, SIGNAL, Stopping
from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.store import read_run_state
from learner.start.list_runs import list_runs
from tests.e2e.preloaded import children_of
from tests.e2e.processes import TRACEBACK, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

NAME = "CartPole"
LONG_SECONDS = 900.0
"""Longer than any test may take: who waits for it hangs."""
ENDLESS = small(hyperparameters={"batch_size": 64, "buffer_size": 256, "num_epoch": 10**8})


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def test_an_end_is_by_an_error_alone_or_also_asked_for() -> None:
    """A run that ends only because its trainers failed is told from one that was asked to end before or after."""
    error = UserError(ExitCode.TRAINER_DIED, "killed")
    asks: dict[str, UserError | None] = {SIGNAL: None, "trainer_failed": error}
    for reasons, is_by_error in [
        (["trainer_failed"], True),
        (["trainer_failed", "trainer_failed"], True),
        ([SIGNAL, "trainer_failed"], False),
        (["trainer_failed", SIGNAL], False),
    ]:
        stopping = Stopping()
        for reason in reasons:
            stopping.ask(reason, final=False, error=asks[reason])
        assert stopping.is_by_error is is_by_error, reasons


INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
LATER = ECHO_SECONDS * 1.01


@pytest.mark.parametrize(
    ("events", "reason", "hurries", "left"),
    [
        ([INT], SIGNAL, False, []),
        ([INT, ECHO_SECONDS / 2, INT], SIGNAL, False, []),  # an echo of the supervisor
        ([INT, LATER, INT], SIGNAL, True, []),
        ([INT, TERM], SIGNAL, True, []),
        ([INT, TERM, INT], SIGNAL, True, ["SIGINT"]),
        ([HUP, LATER, HUP], SIGNAL, False, []),  # a terminal that closes
        ([INT, HUP], SIGNAL, False, []),
        ([HUP, INT], SIGNAL, True, []),
        (["operator", INT], "operator", True, []),
        (["max_steps", INT], "max_steps", False, []),
        (["max_steps", INT, TERM], "max_steps", True, []),
        (["max_steps", INT, TERM, INT], "max_steps", True, ["SIGINT"]),
    ],
)
async def test_the_second_request_hurries_and_the_third_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, events: list[Any], reason: str, *, hurries: bool, left: list[str]
) -> None:
    """Of the user's requests the first ends the run, the second skips the wait for actors, the third ends the process."""
    now, found = [100.0], list[str]()
    monkeypatch.setattr("learner.service.run.stopping.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("learner.service.run.stopping._leave", found.append)
    stopping = Stopping()
    with stopping.listening():
        for event in events:
            match event:
                case float():
                    now[0] += event
                case str():
                    stopping.ask(event, final=True)
                case _:
                    signal.raise_signal(event)
            await asyncio.sleep(0)
    assert stopping.stop is not None
    assert (stopping.stop.reason, stopping.hurry.is_set(), found) == (reason, hurries, left)


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_actors(processes: Processes) -> None:
    """A second signal ends the learner without waiting for actors."""
    limits = {"drain_seconds": LONG_SECONDS, "lease_seconds": LONG_SECONDS}
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, **limits))
    actor = processes.actor(learner.address, "CartPole-v1")
    learner.wait_for_version(NAME, 2, actor)
    actor.signal(signal.SIGSTOP)
    learner.operator.drain(final=True)
    learner.wait_for(lambda: learner.events("stopping"), "the run ends", actor)
    learner.signal(signal.SIGINT)
    assert learner.wait() == ExitCode.OK, learner.said()
    (event,) = learner.events("second_signal")
    assert event["signal"] == "SIGINT"
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["stop_reason"] == "operator"
    assert summary["onnx_path"] is not None


@pytest.mark.slow
def test_a_signal_to_supervisor_and_learner_is_one(processes: Processes) -> None:
    """A signal that reaches the learner itself and through `--restarts` counts once: its actors are awaited."""
    limits = {"drain_seconds": LONG_SECONDS, "lease_seconds": LONG_SECONDS}
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, **limits), "--restarts", "1")
    actor = processes.actor(learner.address, "CartPole-v1")
    learner.wait_for_version(NAME, 2, actor)
    actor.signal(signal.SIGSTOP)
    for pid in (*children_of(learner.pid), learner.pid):
        os.kill(pid, signal.SIGTERM)
    learner.wait_for(lambda: learner.events("stopping"), "the run ends", actor)
    actor.signal(signal.SIGCONT)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert not learner.events("second_signal")


@pytest.mark.slow
def test_a_third_signal_ends_it_at_once(processes: Processes) -> None:
    """A third signal ends the process immediately with its own exit code and one line."""
    learner = processes.learner(write_run(processes.folder, {NAME: ENDLESS}))
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "8")
    learner.wait_for(lambda: learner.behavior(NAME).books.received >= 256, "an update that never ends", actor)
    learner.signal(signal.SIGINT)
    learner.wait_for(lambda: learner.events("stopping"), "the run ends", actor)
    learner.signal(signal.SIGTERM)
    learner.wait_for(lambda: learner.events("second_signal"), "the second signal shows", actor)
    assert learner.is_running, "a second signal lets the update end, for else nothing could be saved"
    learner.signal(signal.SIGINT)
    line = learner.fails_with(ExitCode.INTERRUPTED)
    assert line.startswith("error: SIGINT received again")
    assert "--resume" in line


def _finishes_behind_a_hanging_actor(processes: Processes) -> LearnerProcess:
    """Returns a learner that has trained all its steps and waits for an actor that answers no more."""
    limits = {"drain_seconds": LONG_SECONDS, "lease_seconds": LONG_SECONDS, "summary_seconds": 1.0}
    settings = small(max_steps=3000)
    learner = processes.learner(write_run(processes.folder, {NAME: settings}, **limits))
    hanging = processes.actor(learner.address, "CartPole-v1", name="hanging")
    learner.wait_for(lambda: learner.behavior(NAME).version >= 1, "it plays", hanging)
    hanging.signal(signal.SIGSTOP)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    learner.wait_for(lambda: learner.events("stopping"), "all steps are trained", hanging)
    del actor
    return learner


def _is_saved(learner: LearnerProcess) -> None:
    """Checks that state, checkpoint, model and progress are those of the end of training."""
    (finished,) = learner.events("training_finished")
    folder = learner.folder
    assert (folder / f"{NAME}.onnx").stat().st_size > 0
    assert (folder / NAME / f"{NAME}-{finished['step']}.pt").exists()
    state = read_run_state(folder)
    assert state is not None
    assert state.trainers[NAME]["steps_trained"] == finished["steps_trained"]
    (row,) = list_runs(folder.parent)
    assert row.env_steps_trained == finished["steps_trained"]


@pytest.mark.slow
def test_a_finished_training_is_saved_before_actors_are_waited_for(processes: Processes) -> None:
    """State and model are saved before `training_finished` is logged, so a kill loses nothing."""
    learner = _finishes_behind_a_hanging_actor(processes)
    learner.kill()
    _is_saved(learner)


SWALLOWED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    pass
"""


@pytest.mark.slow
def test_no_import_swallows_a_signal(processes: Processes) -> None:
    """A signal during the imports ends the learner; with trainers as threads it imports torch itself."""
    folder = processes.folder / "modules"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(SWALLOWED)
    run_file = write_run(processes.folder, {NAME: small()}, trainer_process=False)
    learner = processes.python(
        "early", "-m", "learner", "serve", str(run_file), environment={"PYTHONPATH": str(folder)}
    )
    assert learner.wait() == ExitCode.INTERRUPTED, learner.said()
    assert TRACEBACK not in learner.err()
