"""The one thread in which all trainers take their turns."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.common.exits import UserError
from learner.ingest.behaviors import Behavior
from learner.trainers.base import Trainer
from learner.trainers.loop import BusyClock, RequestQueue, RequestsClosedError, TrainerLoop
from learner.trainers.registry import build
from tests.learner.trainers.in_process import Bench, make_bench
from tests.learner.trainers.synthetic import CONTINUOUS, SyntheticActor

SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 60, "batch_size": 16, "num_epoch": 1},
    "network_settings": {"hidden_units": 8},
    "time_horizon": 20,
    "max_steps": 1000,
}
LONG_SECONDS = 30.0  # after this a test has failed; never reached otherwise


class Running:
    """A loop in a thread, with everything around it.

    Attributes:
        failures: what ended the loop.
    """

    def __init__(self, make: Callable[[Bench], Trainer] | None = None) -> None:
        self.bench = make_bench(SETTINGS, CONTINUOUS)
        self.failures: list[BaseException] = []
        self.turns = 0
        self._make = make
        self.loop = TrainerLoop(
            self.bench.table, self._build, on_failure=self.failures.append, after_turn=self._after_turn
        )
        self.thread = threading.Thread(target=self.loop.run, daemon=True)

    def _build(self, behavior: Behavior) -> Trainer:
        assert behavior is self.bench.behavior
        return build(self.bench.context()) if self._make is None else self._make(self.bench)

    def _after_turn(self) -> None:
        self.turns += 1

    def ask(self, call: Callable[[], Any]) -> Any:
        """Runs a call in the loop's thread."""
        return self.loop.submit(call).result(LONG_SECONDS)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition, looked at in the loop's thread."""
        end = time.monotonic() + LONG_SECONDS
        while not self.ask(condition):
            assert time.monotonic() < end, self.failures
            time.sleep(0.01)


@contextmanager
def running(make: Callable[[Bench], Trainer] | None = None) -> Iterator[Running]:
    """Runs a loop; whatever happens it is stopped, and must end."""
    parts = Running(make)
    parts.thread.start()
    try:
        yield parts
    finally:
        parts.loop.stop()
        parts.thread.join(LONG_SECONDS)
        assert not parts.thread.is_alive()


def send(bench: Bench, chunks: int = 4) -> None:
    """Puts chunks of 20 steps into the queue; four make an update."""
    actor = SyntheticActor(bench)
    for _ in range(chunks):
        bench.put(actor.chunk([20]))


def test_a_declared_behavior_gets_a_trainer_that_trains() -> None:
    """A behavior leads to a published policy, and its chunks to a new version."""
    with running() as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        assert parts.bench.published.progress[0].version == 0
        parts.ask(lambda: send(parts.bench))
        parts.until(lambda: parts.loop.trainers["Continuous"].version == 1)
        assert parts.turns > 0
    assert parts.failures == []


def test_a_paused_loop_takes_no_turns_but_answers() -> None:
    """While paused nothing is trained and requests are answered; afterwards training goes on."""
    with running() as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        parts.loop.pause().result(LONG_SECONDS)
        parts.loop.pause().result(LONG_SECONDS)
        assert parts.loop.is_paused
        parts.ask(lambda: send(parts.bench))
        for _ in range(5):
            assert parts.ask(lambda: parts.bench.behavior.queue.queued_chunks) == 4
        parts.loop.resume().result(LONG_SECONDS)
        parts.until(lambda: parts.loop.trainers["Continuous"].version == 1)
    assert parts.failures == []


def test_a_finished_behavior_is_taken_off_the_books() -> None:
    """Behind max_steps the behavior is no longer trained, nothing stays queued, and the loop says that it is finished."""
    with running() as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        assert not parts.loop.is_finished
        while not parts.ask(lambda: parts.loop.is_finished):
            parts.ask(lambda: send(parts.bench))
        books = parts.bench.ledger.books("Continuous")
        assert not parts.bench.behavior.training
        assert books.balanced
        assert books.queued == 0
        assert books.dropped["not_training"] > 0
    assert parts.failures == []


def test_a_behavior_that_has_nothing_left_to_train_says_so() -> None:
    """Resumed behind max_steps it takes no chunk: one line names the setting to raise, and the loop is finished."""

    def resumed(bench: Bench) -> Trainer:
        trainer = build(bench.context())
        trainer.load_state_dict(trainer.state_dict() | {"steps_trained": 960, "steps_failed": 40})
        return trainer

    with capture_logs() as logs, running(resumed) as parts:
        parts.until(lambda: parts.loop.is_finished)
        assert not parts.bench.behavior.training
    assert parts.failures == []
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert (line["event"], line["step"], line["max_steps"]) == ("nothing_to_train", 1000, 1000)
    assert line["steps_trained"] == 960
    assert "raise it" in line["action"]


@pytest.mark.parametrize(("max_steps", "told"), [(50, 1), (1000, 0)])
def test_a_training_that_ends_before_its_first_update_says_so(max_steps: int, told: int) -> None:
    """A model comes of it all the same: the warning names steps, max_steps and what an update needs."""

    def short(bench: Bench) -> Trainer:
        bench.behavior.settings.__dict__["max_steps"] = max_steps
        return build(bench.context())

    with capture_logs() as logs, running(short) as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        while not parts.ask(lambda: parts.loop.is_finished):
            parts.ask(lambda: send(parts.bench))
    warnings = [line for line in logs if line["event"] == "nothing_was_trained"]
    assert len(warnings) == told
    for line in warnings:
        assert (line["max_steps"], line["buffer_size"]) == (50, 60)
        assert line["step"] >= 50
        assert "above buffer_size" in line["action"]


def test_a_trainer_that_raises_is_reported() -> None:
    """The error reaches whoever started the loop, the thread ends, and later requests are refused at once."""

    def broken(bench: Bench) -> Trainer:
        trainer = build(bench.context())
        trainer.train = lambda: 1 // 0  # type: ignore[method-assign,assignment]
        return trainer

    with running(broken) as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        send(parts.bench)
        parts.thread.join(LONG_SECONDS)
        assert [type(error) for error in parts.failures] == [ZeroDivisionError]
        with pytest.raises(RequestsClosedError):
            parts.ask(lambda: None)


def test_a_trainer_that_cannot_be_built_is_reported() -> None:
    """Settings that do not fit the behavior end the run with their message, not in silence."""
    bench = make_bench({**SETTINGS, "reward_signals": {"gail": {"demo_path": "d"}}}, CONTINUOUS)
    with running(lambda _: build(bench.context())) as parts:
        parts.thread.join(LONG_SECONDS)
    assert isinstance(parts.failures[0], UserError)
    assert "gail" in str(parts.failures[0])


def test_a_failing_request_does_not_end_the_loop() -> None:
    """A checkpoint that cannot be written is the business of whoever asked for it."""
    with running() as parts:
        future = parts.loop.submit(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            future.result(LONG_SECONDS)
        assert parts.ask(lambda: 5) == 5
    assert parts.failures == []


def test_what_is_not_waited_is_work() -> None:
    """Waits are left out, the one that goes on too; a turn that goes on counts while it goes on."""
    now = [10.0]
    clock = BusyClock(lambda: now[0])
    now[0] = 13.0
    assert clock.busy_seconds == 3.0
    with clock.waiting():
        now[0] = 20.0
        assert clock.busy_seconds == 3.0
    now[0] = 21.5
    assert clock.busy_seconds == 4.5


def test_a_wait_that_raises_ends_too() -> None:
    """Whatever ends a wait, work goes on after it."""
    now = [0.0]
    clock = BusyClock(lambda: now[0])
    with contextlib.suppress(KeyError), clock.waiting():
        now[0] = 1.0
        raise KeyError
    now[0] = 3.0
    assert clock.busy_seconds == 2.0


def test_calls_run_in_the_thread_that_runs_them() -> None:
    """A call asked for elsewhere runs where the queue is run, and its result goes back."""
    woken = threading.Event()
    queue = RequestQueue(woken.set)
    futures = []
    asking = threading.Thread(target=lambda: futures.append(queue.submit(threading.get_ident)))
    asking.start()
    asking.join()
    assert woken.is_set()
    assert queue.run_pending()
    assert futures[0].result(timeout=0) == threading.get_ident()
    assert not queue.run_pending()


def test_an_error_goes_to_whoever_asked() -> None:
    """What a call raises is raised by its future, and the next call runs all the same."""
    queue = RequestQueue(lambda: None)
    failed, fine = queue.submit(lambda: 1 // 0), queue.submit(lambda: 5)
    queue.run_pending()
    with pytest.raises(ZeroDivisionError):
        failed.result(timeout=0)
    assert fine.result(timeout=0) == 5


def test_a_cancelled_call_does_not_run() -> None:
    """Whoever gave up waiting causes no work."""
    queue = RequestQueue(lambda: None)
    ran: list[int] = []
    queue.submit(lambda: ran.append(1)).cancel()
    queue.run_pending()
    assert ran == []


def test_a_closed_queue_answers_at_once() -> None:
    """Nobody waits for ever: what was asked for before the end, and after it, is refused."""
    queue = RequestQueue(lambda: None)
    before = queue.submit(lambda: 1)
    queue.close()
    after = queue.submit(lambda: 1)
    for future in (before, after):
        with pytest.raises(RequestsClosedError):
            future.result(timeout=0)
