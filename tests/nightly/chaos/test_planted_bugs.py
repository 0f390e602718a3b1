"""Tests that the checker finds bugs that are planted in the learner's service, by scripted schedules over real sockets."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rollcast.history import History, digest_of, oldest_versions
from rollcast.v1 import session_pb2

from learner.service.calls.trajectory import TrajectoryService
from learner.service.calls.uploads import UploadStream
from learner.service.ingest.intake import ChunkIntake
from learner.service.ingest.sessions import SessionTable
from tests.learner.service.calls.harness import Actor, Learner, Upload, failure, running
from tests.learner.service.calls.samples import NAME, make_chunk
from tests.nightly.chaos.checker.check import check_folder
from tests.nightly.chaos.checker.violations import Invariant

EARLY_SECONDS = 0.05


class Bug(enum.StrEnum):
    """What is wrong with the learner."""

    NONE = enum.auto()
    EARLY_ACK = enum.auto()
    """A chunk is acked before it is queued."""
    NO_DUPLICATE_CHECK = enum.auto()
    """A chunk that arrives again is queued again."""
    NO_EPOCH_CHECK = enum.auto()
    """A stream of an older epoch is served after the fence."""


def plant(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches the product."""
    take = TrajectoryService._take

    async def early(self: TrajectoryService, stream: UploadStream, raw: bytes) -> None:
        stream.session.acked_through += 1
        stream.settled(None)
        await asyncio.sleep(EARLY_SECONDS)
        stream.session.acked_through -= 1
        await take(self, stream, raw)

    match bug:
        case Bug.EARLY_ACK:
            monkeypatch.setattr(TrajectoryService, "_take", early)
        case Bug.NO_DUPLICATE_CHECK:
            monkeypatch.setattr(ChunkIntake, "_is_settled", lambda *_: False)
        case Bug.NO_EPOCH_CHECK:
            monkeypatch.setattr(SessionTable, "get", lambda self, session_id, _, principal="": self.find(session_id))


class Script:
    """Sends numbered chunks, and writes the history of an actor.

    Args:
        folder: For the histories.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._history = History(folder / "actor-script.jsonl")

    async def send(self, actor: Actor, upload: Upload, sequence: int) -> None:
        """Sends a chunk of five steps."""
        chunk = make_chunk(5, sequence=sequence)
        digest = digest_of(chunk)
        name = self._history.chunk(actor.session_id, sequence, chunk.generation)
        self._history.write("rows", behavior=NAME, digest=digest, steps=5, versions=oldest_versions(chunk))
        self._history.write("sent", chunk=name, digest=digest, steps=5)
        await upload.send(chunk)

    def found(self) -> dict[Invariant, list[str]]:
        """Returns the violations, with the events of their lines."""
        return {each.invariant: [line.event for line in each.lines] for each in check_folder(self._folder)}


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[tuple[Script, Learner, Actor]]:
    """Starts a service that writes a history, and a client."""
    async with running() as learner, Actor(learner.server.port) as actor:
        learner.ledger.history = History(folder / "learner-1-1.jsonl")
        yield Script(folder), learner, actor


@pytest.mark.parametrize("bug", [Bug.NONE, Bug.EARLY_ACK])
async def test_an_ack_before_queueing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """An ack that is sent before its chunk is queued is found, and none is found in the product."""
    plant(bug, monkeypatch)
    async with stage(tmp_path) as (script, _, actor):
        upload = await actor.join()
        for sequence in (1, 2):
            await script.send(actor, upload, sequence)
            await upload.ack(sequence)
        expected = {} if bug is Bug.NONE else {Invariant.ACKED_HAS_A_FATE: ["ack_out"]}
        assert script.found() == expected


@pytest.mark.parametrize("bug", [Bug.NONE, Bug.NO_DUPLICATE_CHECK])
async def test_a_chunk_that_arrives_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """A chunk that is queued twice is found, with both lines; the product queues it once."""
    plant(bug, monkeypatch)
    async with stage(tmp_path) as (script, learner, actor):
        upload = await actor.join()
        for sequence in (1, 1, 2):
            await script.send(actor, upload, sequence)
        await upload.ack(2)
        if bug is Bug.NONE:
            assert script.found() == {}
            assert learner.ledger.books(NAME).duplicate == 5
        else:
            assert script.found() == {Invariant.TRAINED_ONCE: ["queued", "queued"]}


@pytest.mark.parametrize("bug", [Bug.NONE, Bug.NO_EPOCH_CHECK])
async def test_a_stream_of_an_older_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """A stream that is served after its session was opened again is found, with the fence; the product refuses it."""
    plant(bug, monkeypatch)
    async with stage(tmp_path) as (script, _, actor):
        upload = await actor.join()
        await script.send(actor, upload, 1)
        await upload.ack(1)
        old = actor.epoch
        resume = session_pb2.ResumeSession(session_id=actor.session_id, epoch=old, generation=1, acked_through=1)
        await actor.open(resume=resume)
        upload = await actor.upload(epoch=old)
        if bug is Bug.NONE:
            assert (await failure(upload.until("opened"))).reason == "SESSION_FENCED"
            assert script.found() == {}
        else:
            await upload.until("opened")
            await script.send(actor, upload, 2)
            await upload.ack(2)
            assert script.found() == {Invariant.FENCED: ["fenced", "ack_out"]}
