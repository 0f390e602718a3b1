"""Clients that send more than they were granted, on real sockets."""

from __future__ import annotations

import grpc
from rollcast.errors import CreditExceeded

from learner.ingest.credit import step_allowance
from tests.learner.service.harness import Actor, async_test, failure, running
from tests.learner.service.samples import NAME, make_chunk

LIMIT = 100


@async_test
async def test_a_flood_ends_at_its_credit() -> None:
    """A client that never looks at its credit is cut off with a reason; what was covered is in the queue and the books."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        learner.pace(ahead_limit_steps=LIMIT)
        credit = (await upload.until("ack")).credit[0].steps_through
        covered = (credit + step_allowance(1, 8)) // 10
        for sequence in range(1, covered + 2):
            await upload.send(make_chunk(10, sequence=sequence))
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CREDIT_EXCEEDED")
        books = learner.ledger.books(NAME)
        assert books.balanced
        assert books.received == books.queued == 10 * covered


@async_test
async def test_after_a_flood_the_session_goes_on_if_it_obeys() -> None:
    """The chunk that was refused is not taken: the stream opens again at its number, and new credit takes it."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.send(make_chunk(100))
        assert isinstance(await failure(upload.ack(1)), CreditExceeded)
        learner.pace(ahead_limit_steps=LIMIT)
        upload = await actor.upload()
        opened = await upload.until("opened")
        assert (opened.next_sequence, opened.credit[0].steps_through) == (1, step_allowance(1, 8) + LIMIT)
        await upload.send(make_chunk(100))
        await upload.ack(1)
        assert learner.ledger.books(NAME).queued == 100
