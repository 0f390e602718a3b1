"""Tests how signals end a learner process."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.checkpoints.store import read_run_state
from learner.commands.list_runs import list_runs
from learner.common.exits import ExitCode, UserError
from learner.front.stopping import ECHO_SECONDS, SIGNAL, Stopping
from tests.e2e.preloaded import children_of
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow

NAME = "CartPole"
LONG_SECONDS = 900.0
"""Longer than any test may take: who waits for it hangs."""
ENDLESS = small(hyperparameters={"batch_size": 64, "buffer_size": 256, "num_epoch": 10**8})


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def _asked_twice(learner: LearnerProcess, *others: Child) -> None:
    """Sends two signals, the second once the first one shows."""
    learner.signal(signal.SIGINT)
    (event,) = learner.wait_for(lambda: learner.events("stopping"), "the run ends", *others)
    assert "saved" in event["action"]
    assert "a second signal" in event["action"]
    time.sleep(ECHO_SECONDS)
    learner.signal(signal.SIGINT)


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


@pytest.mark.parametrize("final", [False, True])
def test_a_second_signal_does_not_wait_for_actors(processes: Processes, final: bool) -> None:
    """A second signal ends the learner without waiting for actors."""
    limits = {"drain_seconds": LONG_SECONDS, "lease_seconds": LONG_SECONDS}
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, **limits))
    actor = processes.actor(learner.address, "CartPole-v1")
    learner.wait_for_version(NAME, 2, actor)
    actor.signal(signal.SIGSTOP)
    if final:
        learner.operator.drain(final=True)
        learner.wait_for(lambda: learner.events("stopping"), "the run ends", actor)
        learner.signal(signal.SIGINT)
    else:
        _asked_twice(learner, actor)
    assert learner.wait() == ExitCode.OK, learner.said()
    (event,) = learner.events("second_signal")
    assert event["signal"] == "SIGINT"
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["stop_reason"] == ("operator" if final else "signal")
    assert summary["onnx_path"] is not None


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
    time.sleep(0.2)
    actor.signal(signal.SIGCONT)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert not learner.events("second_signal")


def test_a_third_signal_ends_it_at_once(processes: Processes) -> None:
    """A third signal ends the process immediately with its own exit code and one line."""
    learner = processes.learner(write_run(processes.folder, {NAME: ENDLESS}))
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "8")
    learner.wait_for(lambda: learner.behavior(NAME).books.received >= 256, "an update that never ends", actor)
    _asked_twice(learner, actor)
    learner.wait_for(lambda: learner.events("second_signal"), "the second signal shows", actor)
    assert learner.is_running, "a second signal lets the update end, for else nothing could be saved"
    learner.signal(signal.SIGTERM)
    line = learner.fails_with(ExitCode.INTERRUPTED)
    assert line.startswith("error: SIGTERM received again")
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


def test_a_finished_training_is_saved_before_actors_are_waited_for(processes: Processes) -> None:
    """State and model are saved before `training_finished` is logged, so a kill loses nothing."""
    learner = _finishes_behind_a_hanging_actor(processes)
    learner.kill()
    _is_saved(learner)


def test_a_run_that_ends_by_the_clock_saves_before_it_waits(processes: Processes) -> None:
    """State and model are saved before actors are awaited, whatever ended the training."""
    limits = {"drain_seconds": LONG_SECONDS, "lease_seconds": LONG_SECONDS, "max_wall_seconds": 15.0}
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, **limits))
    hanging = processes.actor(learner.address, "CartPole-v1")
    learner.wait_for_version(NAME, 1, hanging)
    hanging.signal(signal.SIGSTOP)
    learner.wait_for((learner.folder / f"{NAME}.onnx").exists, "the model is there", hanging)
    state = read_run_state(learner.folder)
    assert state is not None
    assert state.trainers[NAME]["version"] >= 1
    assert learner.events("stopping")[0]["reason"] == "max_wall_seconds"


def test_two_signals_after_the_end_of_training_lose_nothing(processes: Processes) -> None:
    """Of two signals after the end of training, the second skips the wait for actors."""
    learner = _finishes_behind_a_hanging_actor(processes)
    learner.signal(signal.SIGINT)
    time.sleep(0.02)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert learner.events("second_signal")
    (told,) = learner.events("already_stopping")
    assert told["reason"] == "max_steps"
    assert json.loads((learner.folder / "summary.json").read_text())["stop_reason"] == "max_steps"
    _is_saved(learner)


SWALLOWED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    pass
"""


def test_no_import_swallows_a_signal(processes: Processes) -> None:
    """A signal during the imports ends the learner."""
    folder = processes.folder / "modules"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(SWALLOWED)
    run_file = write_run(processes.folder, {NAME: small()})
    learner = processes.python(
        "early", "-m", "learner", "serve", str(run_file), environment={"PYTHONPATH": str(folder)}
    )
    assert learner.wait() == ExitCode.INTERRUPTED, learner.said()
    assert TRACEBACK not in learner.err()
