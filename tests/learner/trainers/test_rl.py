"""What an update takes, what is too old for it, and who waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from rollcast.enums import HoldReason

from learner.observe.metrics.learner import unobserved
from learner.observe.stats import StatsReporter
from learner.trainers.ppo.trainer import PPOTrainer
from learner.trainers.rl import UpdateClock
from tests.learner.trainers.in_process import Bench, Published
from tests.learner.trainers.started import feed, make
from tests.learner.trainers.synthetic import SyntheticActor


class HoldRecorder(Published):
    """Notes what the trainer asked of the actors when it published."""

    def __init__(self) -> None:
        super().__init__()
        self.bench: Bench | None = None
        self.holds: list[tuple[HoldReason | None, int]] = []

    def publish(self, *arguments: Any) -> None:
        """Copies the state and looks at the pace."""
        super().publish(*arguments)
        if self.bench is not None:
            pace = self.bench.behavior.queue.pace
            self.holds.append((pace.hold, pace.until_version))


@pytest.mark.parametrize("on_policy", ["relaxed", "strict"])
def test_actors_that_take_turns_leave_nothing_behind(on_policy: str) -> None:
    """Not threaded, an update takes all that waits, however much more than buffer_size that is."""
    bench, trainer = make(service={"on_policy": on_policy})
    bench.put(SyntheticActor(bench).chunk([20] * 100))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert (trainer.version, books.trained, dict(books.dropped), books.queued) == (1, 2000, {}, 0)


def test_threaded_actors_that_fall_behind_wait() -> None:
    """Threaded, an actor waits for a newer version once its steps would be too old for the version after this one."""
    bench, trainer = make(threaded=True, service={"max_policy_lag": 2})
    actor, pace = SyntheticActor(bench), []
    for _ in range(4):
        feed(bench, actor, 1, trainer)
        pace.append((bench.behavior.queue.pace.hold, bench.behavior.queue.pace.until_version))
    assert pace == [(None, 0), *((HoldReason.UPDATING, version) for version in (1, 2, 3))]


def test_threaded_strict_never_waits_for_a_version_to_come() -> None:
    """With on_policy: strict actors wait for the newest version there is, not for one that needs their steps."""
    bench, trainer = make(threaded=True, service={"on_policy": "strict"})
    feed(bench, SyntheticActor(bench), 3, trainer)
    assert bench.behavior.queue.pace.until_version == 3


def test_a_threaded_update_takes_what_the_next_one_could_not() -> None:
    """Waiting steps that the next version would make stale are trained by this one, with what came before them."""
    bench, trainer = make(threaded=True, service={"max_policy_lag": 1})
    actor = SyntheticActor(bench)
    feed(bench, actor, 1, trainer)
    bench.put(actor.chunk([20] * 4))
    bench.put(actor.chunk([20], base_version=0))
    bench.put(actor.chunk([20] * 2))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert (trainer.version, dict(books.dropped), trainer.update_buffer.taken_steps) == (2, {}, 40)
    assert books.trained == trainer.steps_trained


@pytest.mark.parametrize("threaded", [False, True])
def test_actors_wait_while_an_update_runs_unless_threaded(*, threaded: bool) -> None:
    """Not threaded, actors wait for the next version from before the update on; its arrival ends the wait."""
    bench, _ = make(threaded=threaded)
    recorder = HoldRecorder()
    trainer = PPOTrainer(bench.context(open_publisher=recorder.open))
    trainer.start()
    bench.published, recorder.bench = recorder, bench
    feed(bench, SyntheticActor(bench), 2, trainer)
    assert recorder.holds == ([(None, 0)] * 2 if threaded else [(HoldReason.UPDATING, 1), (HoldReason.UPDATING, 2)])
    assert bench.behavior.queue.pace.until_version == (0 if threaded else 2)


def test_the_service_knows_what_is_held() -> None:
    """Steps out of the queue stay in the pace until they are trained."""
    bench, trainer = make()
    actor = SyntheticActor(bench)
    bench.put(actor.chunk([20, 20]))
    trainer.advance()
    assert bench.behavior.queue.unsettled_steps == bench.behavior.queue.pace.held_steps == 40
    bench.put(actor.chunk([20, 20]))
    trainer.advance()
    assert (trainer.version, bench.behavior.queue.unsettled_steps) == (1, 0)


@pytest.mark.parametrize("threaded", [False, True])
def test_steps_beyond_the_lag_are_dropped(*, threaded: bool) -> None:
    """max_policy_lag 1: steps of the last version are trained, older ones not; without threads those of one more."""
    bench, trainer = make(threaded=threaded, service={"max_policy_lag": 1})
    actor = SyntheticActor(bench)
    feed(bench, actor, 3, trainer)
    bench.put(actor.chunk([10], base_version=0 + threaded))
    bench.put(actor.chunk([10], base_version=1 + threaded))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert books.dropped == {"stale": 10}
    assert books.received == trainer.get_step + 10


@pytest.mark.parametrize("threaded", [False, True])
def test_strict_trains_only_the_present_version(*, threaded: bool) -> None:
    """With on_policy: strict what was on its way during an update is dropped."""
    bench, trainer = make(threaded=threaded, service={"on_policy": "strict"})
    actor = SyntheticActor(bench)
    late = actor.chunk([20])
    feed(bench, actor, 1, trainer)
    bench.put(late)
    trainer.advance()
    assert bench.ledger.books("Continuous").dropped == {"stale": 20}


def test_phases_are_measured_and_pauses_are_not() -> None:
    """Two seconds of collection around a pause, and one of update."""
    now = 100.0
    stats = StatsReporter("Test")
    clock = UpdateClock(stats, unobserved(), lambda: now)
    now += 0.5
    clock.pause()
    now += 1000
    clock.resume()
    now += 1.5
    clock.begin_update()
    now += 1.0
    clock.end_update(300)
    names = ("Collect Seconds", "Update Seconds", "Steps per Second")
    summaries = [stats.summary(f"Rollcast/{name}") for name in names]
    assert [summary.mean for summary in summaries if summary is not None] == [2.0, 1.0, 100.0]
