"""Tests the trainers' reports to the service."""

from __future__ import annotations

from typing import Any

from learner.link.to_front import Settled, Stats, ToFront
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.view import GpuUse
from learner.training.trainers.loop import TrainerLoop
from learner.training.trainers.registry import build
from learner.training.trainers.reporting import GPU_SECONDS, REPORT_SECONDS, Reporting, Sources
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor
from tests.learner.training.trainers.test_loop import SETTINGS


class Told:
    """A loop whose turns and clock the test controls, with its messages.

    Attributes:
        now: Of the clock.
        messages: So far, of all kinds that trainers send by themselves.
    """

    def __init__(self, **sources: Any) -> None:
        self.now = 100.0
        self.messages: list[ToFront] = []
        self.meters = RunMeters()
        self.bench: Bench = make_bench(SETTINGS, CONTINUOUS)
        self.bench.is_looped = True
        link = self.bench.link
        told = link.to_front.send

        def send(message: ToFront) -> None:
            self.messages.append(message)
            told(message)

        link.to_front.send = send  # type: ignore[method-assign]
        self.reporting = Reporting(send, Sources(self.meters, **sources), lambda: self.now)
        self.loop = TrainerLoop(
            link,
            lambda declared, queue: build(self.bench.context(queue=queue, metrics=self.meters.behavior(declared.name))),
            on_failure=self.fail,
            reporting=self.reporting,
        )

    @property
    def reports(self) -> list[Stats]:
        """Returns all reports."""
        return [message for message in self.messages if isinstance(message, Stats)]

    @staticmethod
    def fail(error: BaseException) -> None:
        """Fails the test."""
        raise AssertionError from error

    def turn(self, seconds: float = 0.0) -> None:
        """Takes a turn after a time."""
        self.now += seconds
        self.loop._turn()

    def train(self) -> None:
        """Sends what makes an update."""
        actor = SyntheticActor(self.bench)
        for _ in range(4):
            self.bench.put(actor.chunk([20]))


def test_reports_are_rare_and_the_newest_gets_out() -> None:
    """Turns in quick succession share a report, which follows their outcomes."""
    told = Told()
    told.turn()
    told.train()
    told.turn()
    told.turn(REPORT_SECONDS / 2)
    assert [report.trainers["Continuous"].version for report in told.reports] == [0]
    assert 0 < told.reporting.due_in_seconds <= REPORT_SECONDS
    told.turn(REPORT_SECONDS)
    assert told.reports[-1].trainers["Continuous"].version == 1
    kinds = [type(message) for message in told.messages]
    assert kinds[-1] is Stats
    assert Settled in kinds[:-1]
    counts = told.reports[-1].counts.behaviors["Continuous"]
    assert sum(counts.policy_lag.counts) == 80
    assert sum(counts.queue_wait.counts) == 4
    assert sum(counts.phase_seconds["optimize"].counts) == 1
    assert sum(told.reports[0].counts.behaviors["Continuous"].policy_lag.counts) == 0, "a report does not change"


def test_a_pause_is_told_of_before_it_is_confirmed() -> None:
    """A pause is reported before it is confirmed."""
    told = Told()
    told.turn()
    told.loop._pause()
    assert told.reports[-1].is_paused
    told.loop._resume()
    assert not told.reports[-1].is_paused


def test_the_last_report_comes_before_the_end() -> None:
    """A loop that stops sends a last report."""
    told = Told()
    told.turn()
    told.train()
    told.turn()
    told.loop.stop()
    told.loop.run()
    assert told.reports[-1].trainers["Continuous"].version == 1


def test_the_memory_of_a_gpu_is_looked_at_now_and_then() -> None:
    """The memory of a GPU is read only at intervals."""
    looks: list[GpuUse] = []

    def look() -> GpuUse:
        looks.append(GpuUse(len(looks) + 1, 9, 10))
        return looks[-1]

    told = Told(gpu=look, obstacle=lambda: "all play", at_target=lambda: {"Continuous"})
    for seconds in (0.0, GPU_SECONDS / 2, GPU_SECONDS / 2):
        told.turn(seconds)
    assert [report.gpu for report in told.reports] == [looks[0], looks[0], looks[1]]
    assert (told.reports[-1].obstacle, told.reports[-1].at_target) == ("all play", frozenset({"Continuous"}))
