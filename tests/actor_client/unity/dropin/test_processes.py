"""Tests the order in which the two child processes start and end, with simulated children and with real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from actor_client.unity.dropin import processes
from actor_client.unity.dropin.exits import STOPPED_EARLY, DropInError, ExitCode
from actor_client.unity.dropin.processes import Hooks, RunProcesses, StopSignals
from tests.actor_client.unity.players.programs import eventually, is_running


@dataclass
class Child:
    """A simulated child.

    Attributes:
        asks: Requests after which it ends; 0 = it ignores them.
        code: Its exit code then.
        after: Seconds after its start at which it ends by itself, with the same code; None = never.
    """

    asks: int = 1
    code: int = 0
    after: float | None = None


class Simulation:
    """Two children, signals, and a clock that advances while the parent waits."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, gateway: Child, learner: Child, *, opens_at: float = 0.5
    ) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.signals = StopSignals()
        self.gateway_error = ""
        self.serves_at = float("inf")
        self._plans = {"gateway": gateway, "learner": learner}
        monkeypatch.setattr(processes, "Child", self._start)
        monkeypatch.setattr(processes, "answers", lambda _: self.now >= opens_at)
        monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1000.0, self.said
        for event in [event for event in self.events if event[0] <= self.now]:
            self.events.remove(event)
            event[1]()

    def _start(self, command: Sequence[str]) -> SimpleNamespace:
        (name,) = command
        plan, asked = self._plans[name], [0]

        def end(code: int) -> None:
            if child.code is None:
                child.code = code
                self.said.append(f"{name} ended")

        def ask() -> None:
            if child.code is None:
                asked[0] += 1
                self.said.append(f"{name} asked")
                if asked[0] == plan.asks:
                    end(plan.code)

        child = SimpleNamespace(code=None, ask=ask, end=lambda: end(-signal.SIGKILL))
        self.said.append(f"{name} started")
        if plan.after is not None:
            self.events.append((self.now + plan.after, lambda: end(plan.code)))
        return child

    def signal_at(self, *seconds: float) -> None:
        """Sends signals at these times."""
        self.events += [(each, lambda: self.signals._note(signal.SIGINT, None)) for each in seconds]

    def run(self) -> tuple[int, str]:
        """Runs both, and returns exit code and last words."""
        hooks = Hooks(
            is_serving=lambda: self.now >= self.serves_at,
            say_serving=lambda: self.said.append("serving"),
            say_stopping=lambda: self.said.append("stopping"),
            say_failed=lambda: self.said.append("failed"),
            gateway_error=lambda: self.gateway_error,
        )
        try:
            return RunProcesses(["gateway"], ["learner"], 5005, self.signals, hooks).run(), ""
        except DropInError as error:
            return error.exit_code, error.message


def test_ports_first_then_the_learner_and_signals_end_players_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner starts once the gateway listens; the first signal ends the gateway and then the learner, each once."""
    run = Simulation(monkeypatch, Child(), Child())
    run.serves_at = 2.0
    run.signal_at(5.0)
    assert run.run() == (ExitCode.OK, "")
    assert run.said == [
        *("gateway started", "learner started", "serving", "stopping"),
        *("gateway asked", "gateway ended", "learner asked", "learner ended"),
    ]


def test_a_second_signal_cuts_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal asks the gateway to kill its players, and makes the learner end immediately."""
    run = Simulation(monkeypatch, Child(asks=2), Child(asks=2))
    run.signal_at(5.0, 6.0)
    assert run.run() == (ExitCode.OK, "")
    assert run.now < 10.0
    assert [run.said.count(f"{name} asked") for name in ("gateway", "learner")] == [2, 2]


def test_a_stop_takes_bounded_time_and_a_third_signal_ends_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that ignores requests is killed after a while; a third signal kills the learner too."""
    run = Simulation(monkeypatch, Child(asks=0), Child(asks=0))
    run.signal_at(5.0, 40.0, 50.0)
    assert run.run() == (ExitCode.INTERRUPTED, "")
    assert run.said[3:] == [
        *("gateway asked", "gateway asked", "gateway ended"),
        *("learner asked", "learner asked", "learner ended"),
    ]


def test_a_gateway_that_fails_is_said_before_the_learner_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user reads why the learner is asked to end; the gateway's own words are last, also of one that fails at its start."""
    run = Simulation(monkeypatch, Child(code=40, after=2.0), Child())
    run.gateway_error = "player 0 died"
    assert run.run() == (ExitCode.ENVIRONMENT_FAILED, "player 0 died")
    assert run.said[2:] == ["gateway ended", "failed", "learner asked", "learner ended"]
    early = Simulation(monkeypatch, Child(code=23, after=0.1), Child())
    early.gateway_error = "the port is in use"
    assert early.run() == (ExitCode.PORT_IN_USE, "the port is in use")
    assert "learner started" not in early.said


def test_a_first_signal_during_the_end_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a child already failed, the user's first signal does not hurry the other."""
    run = Simulation(monkeypatch, Child(code=3, after=2.0), Child(asks=2))
    asked: list[int] = []
    run.signal_at(5.0, 20.0)
    run.events.append((19.0, lambda: asked.append(run.said.count("learner asked"))))
    run.run()
    assert asked == [1]
    assert run.said[-2:] == ["learner asked", "learner ended"]


@pytest.mark.parametrize(
    ("children", "error", "code", "words"),
    [
        ((Child(), Child(code=15, after=2.0)), "", 15, ""),
        ((Child(), Child(code=-9, after=2.0)), "", ExitCode.LEARNER_KILLED, "add --resume=auto"),
        ((Child(code=40, after=2.0), Child()), "player 0 failed", ExitCode.ENVIRONMENT_FAILED, "player 0 failed"),
        ((Child(code=40, after=2.0), Child()), "", ExitCode.ENVIRONMENT_FAILED, "ended with exit code 40"),
        ((Child(code=11, after=2.0), Child()), "", ExitCode.UNKNOWN_ENVIRONMENT, ""),
        ((Child(code=77, after=2.0), Child()), "", ExitCode.GATEWAY_FAILED, ""),
        ((Child(code=40, after=2.0), Child(code=-11)), "gone", ExitCode.ENVIRONMENT_FAILED, "gone"),
    ],
)
def test_a_child_that_fails_ends_the_other_in_good_order(
    monkeypatch: pytest.MonkeyPatch, children: tuple[Child, Child], error: str, code: int, words: str
) -> None:
    """The other child is asked to end; the exit code and the last line are those of the child that failed first."""
    run = Simulation(monkeypatch, *children)
    run.gateway_error = error
    found, said = run.run()
    assert found == code
    assert words in said
    other = "gateway" if children[0].after is None else "learner"
    assert run.said[-2:] == [f"{other} asked", f"{other} ended"]


def test_a_signal_before_there_is_anything_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal before the learner starts, or while it starts, ends the command with one line."""
    run = Simulation(monkeypatch, Child(), Child(), opens_at=10.0)
    run.signal_at(0.3)
    assert run.run() == (ExitCode.INTERRUPTED, STOPPED_EARLY)
    assert run.said == ["gateway started", "gateway asked", "gateway ended"]
    run = Simulation(monkeypatch, Child(), Child(code=-signal.SIGTERM))
    run.signal_at(2.0)
    assert run.run() == (ExitCode.INTERRUPTED, STOPPED_EARLY)


def test_a_run_that_is_over_waits_for_its_players(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a finished run, the command waits until the gateway has ended by itself."""
    run = Simulation(monkeypatch, Child(after=10.0), Child(after=2.0))
    assert run.run() == (ExitCode.OK, "")
    assert run.said[2:] == ["learner ended", "gateway ended"]


def test_a_port_in_use_starts_no_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the gateway's port is taken, the learner is not started."""
    run = Simulation(monkeypatch, Child(code=23, after=1.0), Child(), opens_at=0.0)
    assert run.run()[0] == ExitCode.PORT_IN_USE
    assert run.said == ["gateway started", "gateway ended"]


PARENT = """
import sys, time
from actor_client.unity.dropin.processes import Child
child = Child([sys.executable, "-c", "import time; time.sleep(600)"])
print(child._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_child_has_its_own_session_and_ends_with_its_parent() -> None:
    """Ctrl-C in the terminal reaches no child, because each has its own session; a killed parent's child ends."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert os.getsid(pid) != os.getsid(0)
        parent.kill()
    eventually(lambda: not is_running(pid), "its end")


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGHUP, signal.SIGHUP)])
def test_signals_are_counted(numbers: tuple[signal.Signals, ...]) -> None:
    """Each signal counts, but several hangups of a closing terminal count as one."""
    signals = StopSignals()
    with signals.counted():
        for number in numbers:
            signal.raise_signal(number)
    assert signals.count == (1 if signal.SIGHUP in numbers else 2)
