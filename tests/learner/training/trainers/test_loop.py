"""Tests the loop that gives all trainers their turns."""

from __future__ import annotations

import contextlib
import errno
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.link.control import Request, RequestKind
from learner.link.to_trainers import Books, Declared, ToTrainers
from learner.service.ingest.sessions import SessionTable
from learner.shared import descriptors
from learner.shared.runfolder.documents import CheckpointFailed
from learner.training.trainers.base import Trainer
from learner.training.trainers.loop import BusyClock, TrainerLoop
from learner.training.trainers.outcome_report import ExperienceQueue
from learner.training.trainers.parts import RunPart, Trainers
from learner.training.trainers.registry import build
from tests.learner.link.far_side import serve
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 60, "batch_size": 16, "num_epoch": 1},
    "network_settings": {"hidden_units": 8},
    "time_horizon": 20,
    "max_steps": 1000,
}
LONG_SECONDS = 300.0  # after this a test has failed; never reached otherwise


class Running(RunPart):
    """A loop in a thread.

    Attributes:
        failures: What ended the loop.
    """

    def __init__(self, make: Callable[[Bench], Trainer] | None = None) -> None:
        self.bench = make_bench(SETTINGS, CONTINUOUS)
        self.bench.is_looped = True
        self.failures: list[BaseException] = []
        self.turns = 0
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._make = make
        self.shortages = 0
        self.loop = TrainerLoop(self.bench.link, self._build, (self,), on_failure=self.failures.append)
        self.thread = threading.Thread(target=self.loop.run, daemon=True)

    def _build(self, declared: Declared, queue: ExperienceQueue) -> Trainer:
        assert declared == self.bench.behavior.declared
        self.bench.queue = queue
        return build(self.bench.context()) if self._make is None else self._make(self.bench)

    def trainer_added(self, trainer: Trainer) -> None:
        """Fails as often as asked as if no file could be opened."""
        del trainer
        if self.shortages:
            self.shortages -= 1
            raise OSError(errno.EMFILE, "too many open files")

    def after_turn(self, trainers: Trainers) -> None:
        """Counts turns."""
        del trainers
        self.turns += 1
        while not self._calls.empty():
            call, result = self._calls.get()
            try:
                result.set_result(call())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
                result.set_exception(error)

    def ask(self, call: Callable[[], Any]) -> Any:
        """Runs a call in the loop's thread, between two turns."""
        result: Future[Any] = Future()
        self._calls.put((call, result))
        self.tell(Books(0, {}))  # which no thread awaits
        return result.result(LONG_SECONDS)

    def tell(self, message: ToTrainers) -> None:
        """Sends the loop a message."""
        self.bench.link.to_trainers.send(message)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition, looked at in the loop's thread after each of its turns."""
        end = time.monotonic() + LONG_SECONDS
        while not self.ask(condition):
            assert time.monotonic() < end, self.failures


@contextmanager
def running(make: Callable[[Bench], Trainer] | None = None) -> Iterator[Running]:
    """Runs a loop and stops it at the end."""
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


def test_a_behavior_that_is_declared_at_the_end_gets_no_trainer() -> None:
    """A behavior declared while the loop ends gets no trainer."""
    parts = Running(make=lambda _: pytest.fail("a trainer is built for nothing"))
    parts.loop.stop()
    parts.loop.run()
    assert (parts.failures, dict(parts.loop.trainers)) == ([], {})


def test_a_declared_behavior_gets_a_trainer_that_trains() -> None:
    """A declaration leads to a published policy, and chunks to a new version."""
    with running() as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        assert parts.bench.published.progress[0].version == 0
        parts.ask(lambda: send(parts.bench))
        parts.until(lambda: parts.loop.trainers["Continuous"].version == 1)
        assert parts.turns > 0
    assert parts.failures == []


def test_a_part_that_can_open_no_file_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that reads files for a new trainer does so later if no descriptor is free."""
    monkeypatch.setattr(descriptors, "_SHORTAGE_SECONDS", 0.01)
    parts = Running()
    parts.shortages = 2
    parts.thread.start()
    parts.until(lambda: "Continuous" in parts.loop.trainers)
    parts.loop.stop()
    parts.thread.join(LONG_SECONDS)
    assert (parts.failures, parts.shortages) == ([], 0)


def test_a_paused_loop_takes_no_turns_but_answers() -> None:
    """A paused loop trains nothing and answers requests."""
    with running() as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        parts.tell(Request(1, RequestKind.PAUSE))
        parts.tell(Request(2, RequestKind.PAUSE))
        parts.until(lambda: parts.loop.is_paused)
        parts.ask(lambda: send(parts.bench))
        for _ in range(5):
            assert parts.ask(lambda: parts.bench.behavior.queue.queued_chunks) == 4
        parts.tell(Request(3, RequestKind.RESUME))
        parts.until(lambda: parts.loop.trainers["Continuous"].version == 1)
    assert parts.failures == []


def test_what_was_on_its_way_at_the_end_of_training_is_dropped() -> None:
    """Steps that arrive after the end of training are dropped."""
    with running() as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        while not parts.ask(lambda: parts.bench.table.has_ended_training):
            parts.ask(lambda: send(parts.bench))
        trained = parts.bench.ledger.books("Continuous").trained
        assert trained >= 960
        assert not parts.bench.behavior.training
        for _ in range(2):
            parts.ask(lambda: send(parts.bench))
            parts.until(lambda: parts.bench.ledger.books("Continuous").queued == 0)

        def at_last(trainers: Trainers) -> None:
            del trainers
            send(parts.bench)
            parts.loop.stop()

        parts.after_turn = at_last  # type: ignore[method-assign]
        parts.thread.join(LONG_SECONDS)
    books = parts.bench.ledger.books("Continuous")
    assert (books.balanced, books.trained) == (True, trained)
    assert books.dropped["not_training"] >= 240
    assert parts.bench.behavior.queue.queued_bytes == parts.bench.ledger.queued("Continuous") == 0
    assert parts.failures == []


def test_a_cut_has_everything_that_was_settled() -> None:
    """A cut has books and trainers of one moment."""
    with running() as parts:
        sessions = SessionTable(parts.bench.table, parts.bench.ledger, generation=1)
        serve(parts.bench.link, parts.bench.table, parts.bench.ledger, sessions)
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        for _ in range(3):
            send(parts.bench, 3)

            def cut() -> tuple[int, Any]:
                send(parts.bench, 1)
                return parts.loop.trainers["Continuous"].steps_trained, parts.loop.cut()

            trained, state = parts.ask(cut)
            assert state["ledger"]["Continuous"]["trained"] == trained
        parts.until(lambda: parts.bench.ledger.books("Continuous").trained > 180)  # an update may have 60 or 80 steps
    assert parts.failures == []


def test_a_service_that_does_not_answer_costs_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that the service does not answer times out, and its late answer is ignored."""
    with running() as parts:
        link = parts.bench.link
        link.to_front.connect(lambda: None)
        with monkeypatch.context() as hurried:
            hurried.setattr("learner.training.trainers.loop._CUT_SECONDS", 0.0)
            with pytest.raises(CheckpointFailed, match="did not answer"):
                parts.ask(parts.loop.cut)
        link.to_front.receive()

        def answer() -> None:
            for number in (1, 2):
                link.to_trainers.send(Books(number, {"n": number}))

        link.to_front.connect(answer)
        assert parts.ask(parts.loop.cut) == {"n": 2}
        parts.ask(lambda: None)
    assert parts.failures == []


def test_a_behavior_that_has_nothing_left_to_train_says_so() -> None:
    """A behavior resumed after max_steps logs the setting to raise."""

    def resumed(bench: Bench) -> Trainer:
        trainer = build(bench.context())
        trainer.load_state_dict(trainer.state_dict() | {"steps_trained": 960, "steps_failed": 40})
        return trainer

    with capture_logs() as logs, running(resumed) as parts:
        parts.until(lambda: parts.bench.table.has_ended_training)
        assert not parts.bench.behavior.training
    assert parts.failures == []
    (line,) = (line for line in logs if line["log_level"] == "warning")
    assert (line["event"], line["step"], line["max_steps"]) == ("nothing_to_train", 1000, 1000)
    assert line["steps_trained"] == 960
    assert "is finished: raise its max_steps" in line["action"]
    assert f"--set behaviors.{line['behavior']}.max_steps=2000" in line["action"]


@pytest.mark.parametrize(("max_steps", "told"), [(40, 1), (1000, 0)])
def test_a_training_that_ends_before_its_first_update_says_so(max_steps: int, told: int) -> None:
    """A training without an update warns with steps, max_steps and the required number."""

    def short(bench: Bench) -> Trainer:
        bench.behavior.settings.__dict__["max_steps"] = max_steps
        return build(bench.context())

    with capture_logs() as logs, running(short) as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        while not parts.ask(lambda: parts.bench.table.has_ended_training):
            parts.ask(lambda: send(parts.bench, chunks=1))
    warnings = [line for line in logs if line["event"] == "nothing_was_trained"]
    assert len(warnings) == told
    for line in warnings:
        assert (line["max_steps"], line["buffer_size"]) == (40, 60)
        assert line["step"] >= 40
        assert "above buffer_size" in line["action"]


def test_a_trainer_that_raises_is_reported() -> None:
    """An error of a trainer reaches the loop's owner."""

    def broken(bench: Bench) -> Trainer:
        trainer = build(bench.context())
        trainer.train = lambda: 1 // 0  # type: ignore[method-assign,assignment]
        return trainer

    with running(broken) as parts:
        parts.until(lambda: "Continuous" in parts.loop.trainers)
        send(parts.bench)
        parts.thread.join(LONG_SECONDS)
        assert [type(error) for error in parts.failures] == [ZeroDivisionError]


def test_what_is_not_waited_is_work() -> None:
    """Work is the time without waits, including the current turn."""
    now = [10.0]
    clock = BusyClock(lambda: now[0])
    now[0] = 13.0
    assert clock.busy_seconds == 3.0
    with clock.waiting():
        now[0] = 20.0
        assert clock.busy_seconds == 3.0
    now[0] = 21.5
    assert clock.busy_seconds == 4.5
    with contextlib.suppress(KeyError), clock.waiting():
        now[0] = 30.0
        raise KeyError
    now[0] = 31.0
    assert clock.busy_seconds == 5.5, "a wait that raises has ended"
