"""How signals end a learner: in good order, at speed, at once. Processes of their own, for signals are a process's."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.common.exits import ExitCode
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow

NAME = "CartPole"
LONG_SECONDS = 900.0
"""Longer than any test may take: who waits for it hangs."""
ENDLESS = small(hyperparameters={"batch_size": 64, "buffer_size": 256, "num_epoch": 10**8})


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def _asked_twice(learner: LearnerProcess, *others: Child) -> None:
    """Sends two signals, the second once the first one shows."""
    learner.signal(signal.SIGINT)
    (event,) = learner.wait_for(lambda: learner.events("stopping"), "the run ends", *others)
    assert "saved" in event["action"]
    assert "a second signal" in event["action"]
    learner.signal(signal.SIGINT)


@pytest.mark.parametrize("final", [False, True])
def test_a_second_signal_does_not_wait_for_actors(processes: Processes, final: bool) -> None:
    """An actor that hangs keeps a learner for `drain_seconds`; who signals while the run ends has it end at once."""
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


def test_a_third_signal_ends_it_at_once(processes: Processes) -> None:
    """Whatever it is busy with, the process ends with a code of its own and one line."""
    learner = processes.learner(write_run(processes.folder, {NAME: ENDLESS}))
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "8")
    learner.wait_for(lambda: learner.behavior(NAME).books.received > 256, "an update that never ends", actor)
    _asked_twice(learner, actor)
    learner.wait_for(lambda: learner.events("second_signal"), "the second signal shows", actor)
    assert learner.is_running, "a second signal lets the update end, for else nothing could be saved"
    learner.signal(signal.SIGTERM)
    line = learner.fails_with(ExitCode.INTERRUPTED)
    assert line.startswith("error: SIGTERM once more")
    assert "--resume" in line


SWALLOWED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    pass
"""


def test_no_import_swallows_a_signal(processes: Processes) -> None:
    """Modules that catch everything while they are imported do not keep a learner that starts from ending."""
    folder = processes.folder / "modules"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(SWALLOWED)
    run_file = write_run(processes.folder, {NAME: small()})
    learner = processes.python(
        "early", "-m", "learner", "serve", str(run_file), environment={"PYTHONPATH": str(folder)}
    )
    assert learner.wait() == -signal.SIGINT, learner.said()  # 130 in a shell
    assert TRACEBACK not in learner.err()
