"""An actor whose data is refused whole for a while ends; one whose chunks only come too late goes on."""

from __future__ import annotations

import pytest
from rollcast.v1 import trajectory_pb2

from actor_client.connection import refusals
from actor_client.connection.books import Books
from actor_client.connection.gate import Gate
from actor_client.connection.refusals import MIN_CHUNKS, MIN_SECONDS, DataRefusals
from actor_client.connection.window import Parcel
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.connection.harness import acting
from tests.actor_client.scripted import ScriptedLearner, wait_until

ROWS = 5


class Refusing:
    """Acks chunk after chunk, with a clock that goes by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.refusals = DataRefusals(lambda: self.now)

    def ack(self, chunks: int, reason: str, steps: int = ROWS) -> ActorError | None:
        """Settles so many chunks, each with this rejection; none if there is no reason."""
        parcels = [Parcel(trajectory_pb2.UploadRequest(), Gate(1), Books(), ROWS, 1, n) for n in range(1, chunks + 1)]
        rejections = [
            trajectory_pb2.Rejection(sequence=parcel.sequence, reason=reason, steps=steps, detail="column reward")
            for parcel in parcels
            if reason
        ]
        return self.refusals.settled(parcels, rejections)


def test_data_that_is_refused_whole_for_a_while_ends_the_actor() -> None:
    """Only many chunks over some time count; the line names the reason and the detail."""
    learner = Refusing()
    assert learner.ack(2 * MIN_CHUNKS, "not_finite") is None
    learner.now = MIN_SECONDS
    failure = learner.ack(1, "not_finite")
    assert failure is not None
    assert failure.exit_code is ExitCode.DATA_REFUSED
    assert "not_finite (column reward)" in failure.message


@pytest.mark.parametrize(("reason", "steps"), [("", 0), ("not_finite", ROWS - 1)])
def test_one_good_chunk_begins_the_count_anew(reason: str, steps: int) -> None:
    """A chunk that was taken, in part at least, shows that the data can be used."""
    learner = Refusing()
    learner.ack(MIN_CHUNKS, "bad_observation")
    learner.ack(1, reason, steps)
    learner.now = MIN_SECONDS
    assert learner.ack(MIN_CHUNKS, "bad_observation") is None


@pytest.mark.parametrize("reason", ["stale", "generation", "not_training"])
def test_chunks_that_came_too_late_are_not_counted(reason: str) -> None:
    """What has nothing to do with the data never ends the actor."""
    learner = Refusing()
    learner.ack(MIN_CHUNKS, reason)
    learner.now = MIN_SECONDS
    assert learner.ack(MIN_CHUNKS, reason) is None


def test_the_actor_is_stopped_and_its_books_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stepping thread hears of the end as of any other, and the last chunks are still settled."""
    monkeypatch.setattr(refusals, "MIN_SECONDS", 0.0)
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.reject = "not_finite"
        for _ in range(MIN_CHUNKS + 1):
            actor.send(1)
        wait_until(lambda: actor.link.stopping)
        actor.wait_acked()
        assert actor.link.error is not None
        assert actor.link.error.exit_code is ExitCode.DATA_REFUSED
        assert actor.port.books.view().acked == MIN_CHUNKS + 1
