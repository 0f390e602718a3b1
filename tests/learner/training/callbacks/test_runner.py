"""Tests that callbacks run in their own threads and cannot affect the training."""

import threading
from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from learner.shared.exits import UserError
from learner.training.callbacks.base import Callback, PolicyUpdated, RunEnded, RunRequests, RunStarted
from learner.training.callbacks.runner import ENTRY_POINTS, MAX_FAILURES, MAX_WAITING, CallbackRunner, load_callbacks
from tests.learner.installed import install

END = RunEnded("signal", "", Path("run"))
SECONDS = 60.0


def update(version: int) -> PolicyUpdated:
    """Returns an update."""
    return PolicyUpdated("Walker", version, 100 * version, version, 1.0)


class Listener(Callback):
    """Records its events and their threads."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.threads: set[str] = set()

    def on_update(self, event: PolicyUpdated) -> None:
        """Records the event."""
        self.heard.append(event.version)
        self.threads.add(threading.current_thread().name)

    def on_end(self, event: RunEnded) -> None:
        """Records the event."""
        self.heard.append(event.reason)


def test_everything_is_heard_in_order_and_in_one_thread() -> None:
    """Events arrive in order in the callback's thread, the end last."""
    listener = Listener()
    runner = CallbackRunner("mine", listener)
    for version in range(100):
        runner.tell(update(version))
    runner.end(END, SECONDS)
    assert listener.heard == [*range(100), "signal"]
    assert listener.threads == {"callback mine"}


def test_a_callback_that_raises_is_told_of_once_and_switched_off() -> None:
    """A callback that raises repeatedly is disabled with one traceback; sys.exit is a failure too."""

    class Raises:
        calls = 0

        def on_update(self, _event: PolicyUpdated) -> NoReturn:
            self.calls += 1
            raise SystemExit(3) if self.calls == 2 else ValueError("bad")

    callback = Raises()
    with capture_logs() as logs:
        runner = CallbackRunner("raises", callback)
        for version in range(2 * MAX_FAILURES):
            runner.tell(update(version))
        runner.end(END, SECONDS)
    assert (callback.calls, runner.failures, runner.is_off) == (MAX_FAILURES, MAX_FAILURES, True)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "callback_failed",
        "callback_switched_off",
    ]


def test_failures_that_are_not_in_a_row_switch_nothing_off() -> None:
    """Failures that are not consecutive do not disable a callback."""

    class Sometimes:
        heard = 0

        def on_update(self, event: PolicyUpdated) -> None:
            self.heard += 1
            if event.version % 2:
                raise ValueError("bad")

    callback = Sometimes()
    with capture_logs():
        runner = CallbackRunner("sometimes", callback)
        for version in range(6 * MAX_FAILURES):
            runner.tell(update(version))
        runner.end(END, SECONDS)
    assert (callback.heard, runner.failures, runner.is_off) == (6 * MAX_FAILURES, 3 * MAX_FAILURES, False)


def test_a_callback_that_hangs_stalls_nobody() -> None:
    """A callback that hangs delays nothing: waiting events are limited, and the end is not blocked."""
    go_on, begun = threading.Event(), threading.Event()

    class Hangs(Listener):
        def on_start(self, _event: RunStarted) -> None:
            begun.set()
            go_on.wait(SECONDS)

    callback = Hangs()
    runner = CallbackRunner("hangs", callback)
    runner.tell(RunStarted("run", Path("run"), 1, False, 3, "127.0.0.1:1", RunRequests(*[lambda: None] * 3)))
    assert begun.wait(SECONDS)
    for version in range(MAX_WAITING + 10):
        runner.tell(update(version))
    assert runner.missed == 10
    with capture_logs() as logs:
        runner.end(END, 0.01)
    assert [line["event"] for line in logs] == ["callback_not_over"]
    go_on.set()
    runner.end(END, SECONDS)
    assert callback.heard[-3:] == [MAX_WAITING + 9, "signal", "signal"]


class Hidden:
    """An object whose attributes raise."""

    @property
    def on_update(self) -> NoReturn:
        """Calls sys.exit."""
        raise SystemExit

    def on_end(self, _event: RunEnded) -> None:
        """Records the end."""


def test_a_method_that_cannot_be_looked_up_is_told_of() -> None:
    """An attribute that raises is reported and does not affect the caller."""
    with capture_logs() as logs:
        runner = CallbackRunner("hidden", Hidden())
        assert not runner.hears(PolicyUpdated)
        assert runner.hears(RunEnded)
    assert [entry["event"] for entry in logs] == ["callback_failed"]
    assert runner.failures == 1


MODULE = """
    class Good:
        def on_update(self, event):
            pass

    class Deaf:
        pass
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"good": "callbacks_of_a_test:Good", "deaf": "callbacks_of_a_test:Deaf"}
    site = install(tmp_path / "site", "callbacks_of_a_test", MODULE, {ENTRY_POINTS: points})
    monkeypatch.syspath_prepend(str(site))


def test_each_name_makes_one() -> None:
    """Each name makes one callback, even if listed twice."""
    made = load_callbacks(["good", "callbacks_of_a_test:Good", "good"])
    assert [name for name, _ in made] == ["good", "callbacks_of_a_test:Good"]
    assert {type(callback).__name__ for _, callback in made} == {"Good"}


def test_what_hears_nothing_is_refused() -> None:
    """An object without any of the methods is refused."""
    with pytest.raises(UserError, match="none of the methods on_start, on_update, on_episode, on_checkpoint, on_end"):
        load_callbacks(["deaf"])
