"""Tests the trainers' outcomes: their order, and balanced books."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from rollcast.enums import HoldReason
from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.link.channel import Channel
from learner.link.to_front import Pace, Settled, ToFront
from learner.training.export.describe import Progress
from learner.training.trainers import registry
from learner.training.trainers.base import Trainer
from learner.training.trainers.outcome_report import OutcomeReport
from tests.learner.training.trainers.in_process import Bench, Published, make_bench
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor


class Log(Published):
    """Writes down what a trainer says, in order: messages and policies; the service hears of each message at once."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Settled | int] = []

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Records the version."""
        header = super().publish(state, progress, keep=keep)
        self.said.append(header.version)
        return header

    def listen(self, channel: Channel[ToFront]) -> None:
        """Records all later messages."""
        send = channel.send

        def noted(message: ToFront) -> None:
            if isinstance(message, Settled):
                self.said.append(message)
            send(message)

        channel.send = noted  # type: ignore[method-assign]


def logged(trainer_type: str, **changes: Any) -> tuple[Bench, Log, Trainer]:
    """Returns a bench with its log and a started trainer."""
    own = {} if trainer_type == "sac" else {"num_epoch": 1}
    bench = make_bench(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {"batch_size": 16, "buffer_size": 60, **own},
            "network_settings": {"hidden_units": 8},
            "time_horizon": 20,
            "max_steps": 10_000,
            **changes,
        },
        CONTINUOUS,
    )
    bench.published = log = Log()
    log.listen(bench.link.to_front)
    trainer = registry.build(bench.context())
    trainer.start()
    return bench, log, trainer


@pytest.mark.parametrize("trainer_type", sorted(registry.own_trainers()))
def test_steps_are_settled_before_the_policy_that_learned_from_them(trainer_type: str) -> None:
    """Steps are settled before the policy that learned from them is published."""
    bench, log, trainer = logged(trainer_type)
    actor, sent = SyntheticActor(bench), 0
    for _ in range(12):
        bench.put(actor.chunk([13, 7]))
        sent += 20
        trainer.advance()
        books = bench.ledger.books("Continuous")
        assert (books.received, books.balanced) == (sent, True)
        assert books.queued == sent - books.trained - sum(books.dropped.values())
    assert trainer.version > 0
    trained, at_publication = 0, {}
    for said in log.said:
        if isinstance(said, Settled):
            trained += said.trained
        else:
            at_publication[said] = trained
    assert trained == trainer.steps_trained
    steps = {progress.version: progress.env_steps_trained for progress in log.progress}
    assert at_publication == steps


def test_an_update_begins_after_the_word_that_it_does() -> None:
    """The start of an update is announced with its holds and freed bytes, and not repeated."""
    bench, log, trainer = logged("ppo", threaded=False)
    actor = SyntheticActor(bench)
    seen: list[tuple[Pace, int, int]] = []

    def look() -> None:
        queue = bench.behavior.queue
        seen.append((queue.pace, queue.queued_bytes, bench.ledger.queued("Continuous")))

    train = trainer.train
    trainer.train = lambda: (look(), train())[1]  # type: ignore[method-assign, func-returns-value]
    bench.put(actor.chunk([20] * 4))
    trainer.advance()
    ((pace, queued_bytes, queued_steps),) = seen
    assert (pace.hold, pace.until_version) == (HoldReason.UPDATING, 1)
    assert (queued_bytes, queued_steps) == (0, 80)
    start, begun, ended, published = log.said[0], *log.said[2:]
    assert isinstance(start, Settled)
    assert isinstance(begun, Settled)
    assert isinstance(ended, Settled)
    assert (start.through, begun.through, ended.through, published) == (0, 1, 1, 1)
    assert (begun.trained, ended.trained) == (0, 80)
    said = len(log.said)
    trainer.advance()
    assert len(log.said) == said, "a turn in which nothing happened says nothing"


def test_a_settlement_says_what_is_new() -> None:
    """A report has sums since the last one, and is absent without news."""
    said: list[ToFront] = []
    outcomes = OutcomeReport(4, said.append)
    outcomes.flush(Pace())
    outcomes.flush(Pace())
    assert said == [Settled(4, 0, 0, {}, Pace())]
    outcomes.trained(3)
    outcomes.trained(4)
    outcomes.drop("stale", 2)
    outcomes.drop("too_long", 0)
    outcomes.take(9)
    outcomes.flush(Pace())
    outcomes.flush(Pace(owed_steps=1))
    outcomes.flush(Pace(owed_steps=1))
    assert said[1:] == [Settled(4, 9, 7, {"stale": 2}, Pace()), Settled(4, 9, 0, {}, Pace(owed_steps=1))]
