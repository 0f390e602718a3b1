"""Tests calls of environments that do not return."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from actor_client.counts import RolloutCounts
from actor_client.exits import ActorError, ExitCode
from actor_client.rollout.vector.environments import CLOSE, CONSTRUCTION, RESET, STEP
from actor_client.rollout.vector.watch import (
    CLOSE_SECONDS,
    CONSTRUCTION_SECONDS,
    REPORT_SECONDS,
    STOP_SECONDS,
    WARN_SECONDS,
    EnvironmentWatch,
)


@dataclass
class Calls:
    """Environments whose current call the test chooses."""

    calls: int = 0
    call: str = ""
    active: int | None = None
    num_envs: int = 1
    ending: str = ""

    def begin(self, call: str, active: int | None = None) -> None:
        """Starts a call."""
        self.calls += 1
        self.call, self.active = call, active


class Scene:
    """A watch with a manual clock."""

    def __init__(self, timeout_seconds: float | None = None) -> None:
        self.now = 100.0
        self.is_stopping = False
        self.calls = Calls()
        self.counts = RolloutCounts()
        self.watch = EnvironmentWatch(
            self.calls,
            self.counts,
            is_stopping=lambda: self.is_stopping,
            give_up=lambda _: None,
            timeout_seconds=timeout_seconds,
            clock=lambda: self.now,
        )
        self.watch.look()

    def after(self, seconds: float) -> ActorError | None:
        """Polls the watch after this many seconds."""
        self.now += seconds
        return self.watch.look()


def test_a_hanging_call_is_told_of_in_growing_intervals() -> None:
    """A hanging call is reported at growing intervals, to the learner earlier than in the log."""
    scene = Scene()
    scene.calls.begin(STEP, 3)
    scene.watch.look()
    with capture_logs() as logs:
        assert scene.after(REPORT_SECONDS - 1) is None
        assert scene.counts.hanging is None
        scene.after(1)
        assert scene.counts.hanging is not None
        assert scene.counts.hanging[0] == "environment 3 has been in step()"
        assert scene.counts.hanging[1] == REPORT_SECONDS
        for _ in range(250):
            scene.after(1)
    told = [line["call"].rpartition(" for ")[2] for line in logs if line["event"] == "environment_hangs"]
    assert told == ["30 s", "60 s", "120 s", "240 s"]


def test_a_call_that_returns_after_all_is_taken_back() -> None:
    """When a hanging call returns, the learner is notified, and the next one is reported as early."""
    scene = Scene()
    for _ in range(2):
        scene.calls.begin(STEP)
        scene.watch.look()
        with capture_logs() as logs:
            scene.after(WARN_SECONDS)
            assert scene.counts.hanging is not None
            scene.calls.call = ""
            scene.after(1)
        assert scene.counts.hanging is None
        assert [line["event"] for line in logs] == ["environment_hangs", "environment_returned"]


def test_progress_from_one_environment_to_the_next_is_no_hang() -> None:
    """Sixty environments of ten seconds each are not reported as hanging."""
    scene = Scene(timeout_seconds=15.0)
    scene.calls.begin(STEP)
    for index in range(60):
        scene.calls.active = index
        assert scene.after(9.0) is None
    assert scene.counts.hanging is None


@pytest.mark.parametrize("call", [STEP, RESET, CLOSE])
def test_a_time_limit_ends_the_actor(call: str) -> None:
    """--step-timeout limits each step, reset and close."""
    scene = Scene(timeout_seconds=2.0)
    scene.calls.begin(call, 1)
    scene.watch.look()
    assert scene.after(1.9) is None
    error = scene.after(0.2)
    assert error is not None
    assert error.exit_code is ExitCode.ENVIRONMENT_HANGS
    assert f"environment 1 has been in {call}" in error.message
    assert "--step-timeout allows 2 s" in error.message


def test_an_actor_that_ends_does_not_wait_for_close() -> None:
    """A close that does not return after an error, without a request to stop, is left, and the message names the error."""
    scene = Scene()
    scene.calls.begin(CLOSE)
    scene.calls.ending = "the learner refused the actor"
    scene.watch.look()
    assert scene.after(CLOSE_SECONDS - 1.0) is None
    error = scene.after(2.0)
    assert error is not None
    assert "it is the actor's end (the learner refused the actor)" in error.message


@pytest.mark.parametrize(
    ("call", "seconds"), [(STEP, STOP_SECONDS), (CONSTRUCTION, STOP_SECONDS), (CLOSE, CLOSE_SECONDS)]
)
def test_a_request_to_stop_is_not_held_up(call: str, seconds: float) -> None:
    """A stop request takes effect within seconds, however long the call has lasted."""
    scene = Scene()
    scene.calls.begin(call)
    scene.watch.look()
    assert scene.after(100.0) is None
    scene.is_stopping = True
    assert scene.after(seconds - 0.1) is None
    error = scene.after(0.2)
    assert error is not None
    assert error.exit_code is ExitCode.ENVIRONMENT_HANGS
    assert "asked to stop" in error.message


def test_the_thread_gives_up_once() -> None:
    """The watch gives up once, in its own thread."""
    calls, errors, done = Calls(), list[ActorError](), threading.Event()

    def give_up(error: ActorError) -> None:
        errors.append(error)
        done.set()

    calls.begin(STEP)
    watch = EnvironmentWatch(calls, RolloutCounts(), is_stopping=lambda: False, give_up=give_up, timeout_seconds=0.01)
    with watch:
        assert done.wait(30)
    assert len(errors) == 1


@pytest.mark.parametrize(("num_envs", "seconds"), [(1, CONSTRUCTION_SECONDS), (8, 80.0)])
def test_a_construction_that_hangs_is_ended_too(num_envs: int, seconds: float) -> None:
    """A time limit of 10 s gives each environment 10 s, and all of them together at least a minute."""
    scene = Scene(timeout_seconds=10.0)
    scene.calls.num_envs = num_envs
    scene.calls.begin(CONSTRUCTION)
    scene.watch.look()
    with capture_logs() as logs:
        assert scene.after(WARN_SECONDS) is None
    assert [line["event"] for line in logs] == ["environment_hangs"]
    assert scene.after(seconds - WARN_SECONDS - 0.1) is None
    error = scene.after(0.2)
    assert error is not None
    assert f"--step-timeout allows {seconds:g} s" in error.message
