"""Tests uploads on real sockets: acks, credit, holds, errors and ownership of streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import grpc
import numpy as np
import pytest
from rollcast.enums import HoldReason
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import session_pb2, trajectory_pb2
from structlog.testing import capture_logs

from learner.link.control import Failed
from learner.link.to_front import Cut, SetHold
from learner.service.calls.trajectory import chunk_bytes
from learner.service.ingest.credit import step_allowance
from learner.shared.exits import ExitCode
from tests.learner.service.calls.harness import Actor, Learner, eventually, failure, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_options, make_policy


def take(learner: Learner) -> list[int]:
    """Takes what waits, which makes room, and returns the sequences."""
    taken = [item.chunk.sequence for item in learner.trainers.take()]
    learner.trainers.settle()
    return taken


async def test_a_full_session_life() -> None:
    """Every step of a complete session is in the queue and in the books."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        await actor.declare(agents=2)
        upload = await actor.upload()
        opened = await upload.until("opened")
        assert opened.next_sequence == 1
        assert opened.credit[0].steps_through == step_allowance(2, 8)
        await upload.deliver(*(make_chunk(5, sequence=sequence) for sequence in (1, 2, 3)))
        await upload.finish()
        await actor.close(books=[session_pb2.ActorBooks(produced_steps=15, acked_steps=15)])
        items = learner.trainers.take()
        assert [item.chunk.sequence for item in items] == [1, 2, 3]
        assert items[0].actor_index == 0
        assert items[0].session_id == actor.session_id
        assert items[0].encoded_bytes == encode_chunk(make_chunk(5)).ByteSize()
        np.testing.assert_array_equal(np.ones((5, 4), np.float32), items[0].chunk.columns["obs/state"])
        books = learner.ledger.books(NAME)
        assert (books.received, books.queued, books.balanced) == (15, 15, True)
        assert learner.sessions.steps_taken(0) == 15


async def test_a_pace_brings_credit_at_once() -> None:
    """New limits of a trainer reach a waiting actor without an ack."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        allowance = step_allowance(1, 8)
        learner.pace(ahead_limit_steps=100)
        assert (await upload.until("ack")).credit[0].steps_through == allowance + 100
        ack = await upload.deliver(make_chunk(30))
        assert not ack.credit or ack.credit[0].steps_through == allowance + 100
        assert take(learner) == [1]
        learner.pace(ahead_limit_steps=100)
        await actor.renew()
        learner.trainers.settle(trained=30)
        steps_through = 0
        while steps_through < allowance + 130:
            before, steps_through = steps_through, (await upload.until("ack")).credit[0].steps_through
        assert before <= allowance + 100
        assert steps_through == allowance + 130


async def test_a_pause_holds_every_behavior() -> None:
    """A pause reaches open uploads and is in the first message of later ones."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        learner.link.to_front.send(SetHold(HoldReason.PAUSED, active=True))
        assert (await upload.until("hold")).reason == trajectory_pb2.HOLD_REASON_PAUSED
        again = await actor.upload()
        opened = await again.until("opened")
        assert [hold.reason for hold in opened.holds] == [trajectory_pb2.HOLD_REASON_PAUSED]
        learner.link.to_front.send(SetHold(HoldReason.PAUSED, active=False))
        assert not (await again.until("hold")).active


async def test_a_duplicate_is_acked_again_and_not_queued_again() -> None:
    """A chunk below the next sequence is acked, counted as a duplicate, and ignored."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(3, sequence=1))
        await upload.send(make_chunk(3, sequence=1))
        assert (await upload.until("ack")).acked_through == 1
        assert take(learner) == [1]
        books = learner.ledger.books(NAME)
        assert (books.received, books.duplicate) == (3, 3)


async def test_a_second_stream_supersedes_the_first() -> None:
    """A newer upload ends the older one with STREAM_SUPERSEDED."""
    async with running() as learner, Actor(learner.server.port) as actor:
        old = await actor.join()
        new = await actor.opened_upload()
        error = await old.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STREAM_SUPERSEDED")
        await new.deliver(make_chunk())
        assert learner.server.connected == 1


async def test_a_flood_ends_at_its_credit() -> None:
    """A client that ignores its credit is closed with a reason; covered chunks are kept."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        learner.pace(ahead_limit_steps=2000)
        credit = (await upload.until("ack")).credit[0].steps_through
        covered = (credit + step_allowance(1, 8)) // 10
        for sequence in range(1, covered + 2):
            await upload.send(make_chunk(10, sequence=sequence))
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CREDIT_EXCEEDED")
        books = learner.ledger.books(NAME)
        assert books.balanced
        assert books.received == books.queued == 10 * covered


async def test_opening_again_fences_a_stream() -> None:
    """A second opening ends the upload of the older epoch."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        old = actor.epoch
        resume = session_pb2.ResumeSession(session_id=actor.session_id, epoch=old, generation=1)
        assert (await actor.open(resume=resume)).resumed
        assert (await upload.failure()).reason == "SESSION_FENCED"
        late = await actor.upload(epoch=old)
        assert (await late.failure()).reason == "SESSION_FENCED"


async def test_an_expired_lease_ends_the_stream() -> None:
    """An upload whose session is silent ends with SESSION_EXPIRED, and so do later calls."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        learner.end_lease(actor)
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")
        assert (await failure(actor.renew())).reason == "SESSION_EXPIRED"
        assert learner.metric("rollcast_learner_sessions_expired_total") == 1


async def test_chunks_keep_the_lease() -> None:
    """Chunks renew the lease."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        session = learner.sessions.find(actor.session_id)
        for _ in range(2):  # a duplicate, too
            session.lease_until = before = learner.sessions.clock() + 1000
            await upload.send(make_chunk())
            await upload.until("ack")
            assert session.lease_until < before


async def test_a_malformed_chunk_ends_the_stream() -> None:
    """A malformed chunk ends the stream with the reason after earlier chunks are acked."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.send(make_chunk(sequence=1))
        bad = encode_chunk(make_chunk(sequence=2))
        bad.rows = 7
        await upload.send_message(bad)
        assert (await upload.ack(1)).acked_through == 1
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_CHUNK")
        assert error.metadata["sequence"] == "2"
        assert "Traceback" not in error.message
        assert learner.ledger.books(NAME).received == 3


@pytest.mark.parametrize(
    ("chunk", "part"),
    [
        (make_chunk(behavior_index=9), "behavior index 9"),
        (make_chunk(team=3), "team 3"),
        (make_chunk(generation=2), "generation 2"),
        (make_chunk(base_version=6), "version 6"),
        (make_chunk(agents=2**31), "agents"),
    ],
)
async def test_what_cannot_be_is_malformed(chunk: Chunk, part: str) -> None:
    """Unknown behaviors, teams, generations and versions end the stream with the value."""
    async with running() as learner, Actor(learner.server.port) as actor:
        learner.publish(make_policy(5))
        upload = await actor.join()
        await upload.send(chunk)
        error = await upload.failure()
        assert error.reason == "MALFORMED_CHUNK"
        assert part in error.message


async def test_a_behavior_without_trainer_is_acked_as_not_training() -> None:
    """After the training of a behavior, its chunks are dropped as not_training and credit continues."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(4, sequence=1))
        learner.trainers.finish()
        credit = (await upload.until("ack")).credit[0]
        assert credit.steps_through > 1000
        with capture_logs() as logs:
            (rejection,) = (await upload.deliver(make_chunk(5, sequence=2))).rejections
        assert rejection.reason == "not_training"
        assert logs == []
        books = learner.ledger.books(NAME)
        assert (books.received, books.dropped, books.queued) == (9, {"not_training": 9}, 0)
        assert not (await actor.declare()).training


async def test_an_oversized_message_is_refused_by_grpc_itself() -> None:
    """A message above gRPC's limit ends the stream without details; one above ours has a reason."""
    unlimited = [("grpc.max_send_message_length", -1)]
    options = make_options(max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024)
    async with running(options) as learner, Actor(learner.server.port, options=unlimited) as actor:
        upload = await actor.join()
        await upload.send(make_chunk(20_000))
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "")
        upload = await actor.opened_upload()
        await upload.send(make_chunk(2_800))
        error = await upload.failure()
        assert error.reason == "MALFORMED_CHUNK"
        assert error.metadata["max_chunk_bytes"] == "65536"


async def test_messages_out_of_order_are_refused() -> None:
    """A stream without `open` first, with two, or with garbage ends with BAD_REQUEST."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.join()
        opening = trajectory_pb2.UploadOpen(session_id=actor.session_id, epoch=actor.epoch)
        requests = [
            [trajectory_pb2.UploadRequest(chunk=encode_chunk(make_chunk()))],
            [trajectory_pb2.UploadRequest(open=opening), trajectory_pb2.UploadRequest(open=opening)],
            [trajectory_pb2.UploadRequest()],
        ]
        for messages in requests:
            call = actor.trajectories.Upload(iter(messages))
            error = await failure(_read_all(call))
            assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
        raw: Any = actor.channel.stream_stream("/rollcast.v1.TrajectoryService/Upload")
        error = await failure(_read_all(raw(iter([b"\xff\xff garbage"]))))
        assert error.reason == "BAD_REQUEST"
        error = await failure(_read_all(raw(iter([]))))
        assert error.reason == "BAD_REQUEST"


async def test_what_trainers_say_is_carried_out_in_order() -> None:
    """A cut has everything sent before it; after an invalid message no cut is made."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(10))
        assert len(take(learner)) == 1
        learner.trainers.settle(trained=4)
        learner.link.to_front.send(Cut(3))
        learner.trainers.settle(trained=7)
        learner.link.to_front.send(Cut(4))
        learner.trainers.settle(dropped={"stale": 6})
        await eventually(lambda: learner.ledger.books(NAME).dropped == {"stale": 6})
        (books,) = learner.trainers.books
        row = books.state["ledger"][NAME]
        assert (books.number, row["trained"], row["queued"], row["dropped"]) == (3, 4, 6, {})
        assert learner.ledger.books(NAME).balanced
        (failed,) = learner.ends
        assert isinstance(failed, Failed)
        assert failed.exit_code is ExitCode.TRAINER_FAILED
        learner.ends.clear()


async def test_a_full_queue_stops_reading_and_goes_on_when_there_is_room() -> None:
    """A full queue stops reading from actors that ignore their credit, and nothing is lost."""
    options = make_options(queue_bytes=128 * 1024, max_chunk_bytes=64 * 1024, target_chunk_bytes=64 * 1024)
    async with running(options) as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        learner.pace(ahead_limit_steps=40_000)
        await upload.until("ack")

        async def send_too_much() -> None:
            for sequence in range(1, 41):
                await upload.send(make_chunk(1000, sequence=sequence))

        sender = asyncio.create_task(send_too_much())
        await eventually(lambda: learner.behavior.queue.queued_chunks >= 3)
        for _ in range(20):
            await actor.renew()
        assert learner.behavior.queue.queued_bytes <= 128 * 1024
        taken: list[int] = []
        while len(taken) < 40:
            taken += take(learner)
            await asyncio.sleep(0)
        await sender
        await upload.ack(40)
        assert taken == list(range(1, 41))
        assert learner.ledger.books(NAME).queued == 40_000


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21])
def test_the_size_of_a_chunk_follows_from_its_request(size: int) -> None:
    """The encoded size of a chunk is computed from its request."""
    prefix = 1 if size < 128 else 2 if size < 16384 else 3 if size < 2**21 else 4
    assert chunk_bytes(1 + prefix + size) == size


async def _read_all(call: AsyncIterable[object]) -> None:
    async for _ in call:
        pass
