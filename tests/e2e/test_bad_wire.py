"""Tests hostile clients of a real learner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.specs import ObservationSpec
from rollcast.trajectories import encode_chunk
from rollcast.v1 import trajectory_pb2

from tests.e2e.books import by_reason
from tests.e2e.processes import LearnerProcess, processes_in
from tests.e2e.runs import small, write_run
from tests.learner.service.calls.harness import Actor, Upload, failure, read_policy
from tests.learner.service.calls.samples import make_chunk, make_spec
from tests.learner.service.ingest.test_episodes import only_episodes, with_episodes

NAME = "Raw"
ROWS = 3


@pytest.fixture(scope="module")
def raw_learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """Starts a learner for this module, in which hand-made messages use behavior index 0."""
    folder = tmp_path_factory.mktemp("raw")
    with processes_in(folder) as started:
        yield started.learner(write_run(folder, {NAME: small()}))


def _actor(learner: LearnerProcess, name: str) -> Actor:
    # A client without limits, because some of its messages are too long.
    options = [("grpc.max_send_message_length", -1)]
    return Actor(int(learner.address.rpartition(":")[2]), name, options)


def _good() -> bytes:
    return trajectory_pb2.UploadRequest(chunk=encode_chunk(make_chunk(ROWS))).SerializeToString()


def _truncated() -> bytes:
    return _good()[:-7]


def _shortened_column() -> bytes:
    chunk = encode_chunk(make_chunk(ROWS))
    chunk.columns[0].tensor.data = chunk.columns[0].tensor.data[:-4]
    return trajectory_pb2.UploadRequest(chunk=chunk).SerializeToString()


def _huge_claim() -> bytes:
    """Returns a few bytes that claim a huge size."""
    chunk = encode_chunk(make_chunk(ROWS))
    del chunk.columns[0].tensor.shape[:]
    chunk.columns[0].tensor.shape.extend([2**31, 2**31])
    return trajectory_pb2.UploadRequest(chunk=chunk).SerializeToString()


def _oversized() -> bytes:
    chunk = trajectory_pb2.Chunk(stat_keys=["x" * (MAX_CHUNK_BYTES + 2**20)])
    return trajectory_pb2.UploadRequest(chunk=chunk).SerializeToString()


def _garbage() -> bytes:
    return np.random.default_rng(1).bytes(1000)


BAD = {
    "truncated": (_truncated, grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST"),
    "garbage": (_garbage, grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST"),
    "short column": (_shortened_column, grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_CHUNK"),
    "huge claim": (_huge_claim, grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_CHUNK"),
    "oversized": (_oversized, grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_broken_message_ends_its_stream(raw_learner: LearnerProcess, case: str) -> None:
    """A malformed message ends its stream with the right status, and the session can open another."""
    make, code, reason = BAD[case]
    async with _actor(raw_learner, case) as actor:
        await actor.open()
        await actor.declare(make_spec(NAME))
        await _see_policy(actor)
        before = raw_learner.behavior(NAME).books.received
        error = await _send_raw(actor, make)
        assert (error.code, error.reason) == (code, reason), error
        assert "Traceback" not in str(error)
        upload = await actor.upload()
        assert (await upload.until("opened")).next_sequence == 1
        await upload.send(make_chunk(ROWS))
        assert not (await upload.ack(1)).rejections
        await upload.finish()
        await actor.close()
    raw_learner.wait_for(lambda: raw_learner.behavior(NAME).books.received == before + ROWS, "the books show it")
    assert "Traceback" not in raw_learner.err()


async def _see_policy(actor: Actor) -> None:
    """Waits for a policy, without which no rows can have been made."""
    call = actor.subscribe()
    await read_policy(call)
    call.cancel()


async def test_rows_under_versions_that_cannot_be_are_refused(raw_learner: LearnerProcess) -> None:
    """A version too large for a trainer is malformed, and the learner continues."""
    async with _actor(raw_learner, "versions") as actor:
        upload = await actor.join(spec=make_spec(NAME))
        await _see_policy(actor)
        await upload.send(make_chunk(ROWS, base_version=2**63 + 5))
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_CHUNK")
        assert str(2**63 + 5) in error.message
        await actor.close()
    assert raw_learner.is_running


async def test_what_cannot_be_trained_is_refused_and_the_learner_goes_on(tmp_path: Path) -> None:
    """An invalid image and a ring beyond the memory end their actors, not the run."""
    big = small(hyperparameters={"batch_size": 64, "buffer_size": 10_240})
    with processes_in(tmp_path) as started:
        run = write_run(
            tmp_path,
            {"Small": small(network_settings={"vis_encode_type": "nature_cnn"}), "Big": big, NAME: small()},
            max_training_bytes=2**30,
        )
        learner = started.learner(run)
        pixels = ObservationSpec(
            "pixels", np.dtype(np.uint8), (10, 12, 3), ObservationKind.IMAGE, layout=ImageLayout.HWC
        )
        async with _actor(learner, "untrainable") as actor:
            await actor.open()
            for spec in (replace(make_spec("Small"), observations=(pixels,)), make_spec("Big", size=500_000)):
                error = await failure(actor.declare(spec))
                assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UNTRAINABLE")
            await actor.declare(make_spec(NAME))
            await _see_policy(actor)
        assert learner.is_running
        assert "Traceback" not in learner.err()


async def _send_raw(actor: Actor, make: Callable[[], bytes]) -> Any:
    """Sends bytes on an upload stream, as the first thing after `open`, and returns how it ends."""
    method = "/rollcast.v1.TrajectoryService/Upload"
    call: Any = actor.channel.stream_stream(method, response_deserializer=trajectory_pb2.UploadResponse.FromString)()
    opening = trajectory_pb2.UploadOpen(session_id=actor.session_id, epoch=actor.epoch)
    await call.write(trajectory_pb2.UploadRequest(open=opening).SerializeToString())
    upload = Upload(call)
    await upload.until("opened")
    with contextlib.suppress(grpc.RpcError):  # the learner may have ended the stream before all of it was sent
        await call.write(make())
    return await upload.failure()


async def test_rows_that_are_not_finite_are_refused(raw_learner: LearnerProcess) -> None:
    """A chunk with NaN is acked with its reason and counted as dropped; the next chunk is accepted."""
    bad = make_chunk(ROWS)
    bad.columns["reward"] = np.array([1.0, np.nan, 1.0], np.float32)
    async with _actor(raw_learner, "nan") as actor:
        upload = await actor.join(spec=make_spec(NAME))
        await _see_policy(actor)
        before = raw_learner.behavior(NAME).books
        await upload.send(bad)
        (rejection,) = (await upload.ack(1)).rejections
        assert (rejection.sequence, rejection.reason, rejection.steps) == (1, "not_finite", ROWS)
        assert "reward" in rejection.detail
        await upload.send(make_chunk(ROWS, sequence=2))
        assert not (await upload.ack(2)).rejections
        await upload.finish()
        await actor.close()
    received = before.received + 2 * ROWS
    raw_learner.wait_for(lambda: raw_learner.behavior(NAME).books.received == received, "the books show both chunks")
    after = raw_learner.behavior(NAME).books
    assert by_reason(after.dropped)["not_finite"] == by_reason(before.dropped).get("not_finite", 0) + ROWS
    (line,) = raw_learner.events("rows_rejected")
    assert line["actor"] == "nan"


async def test_a_gap_and_a_stranger_are_refused(raw_learner: LearnerProcess) -> None:
    """A gap in the sequence and an unknown session end with their own reasons."""
    async with _actor(raw_learner, "gap") as actor:
        upload = await actor.join(spec=make_spec(NAME))
        await upload.send(make_chunk(ROWS, sequence=5))
        error = await upload.failure()
        assert (error.code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "SEQUENCE_GAP")
        await actor.close()
        actor.session_id = "0" * 32
        error = await (await actor.upload()).failure()
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")


async def test_invented_returns_do_not_end_a_run(tmp_path: Path) -> None:
    """A chunk of 100 returns above the target, without a row, neither ends the run nor enters its mean."""
    with processes_in(tmp_path) as started:
        learner = started.learner(write_run(tmp_path, {NAME: small()}, target_return=50))
        async with _actor(learner, "inventor") as actor:
            upload = await actor.join(spec=make_spec(NAME))
            await _see_policy(actor)
            await upload.send(only_episodes(100))
            assert not (await upload.ack(1)).rejections
            await upload.send(with_episodes(make_chunk(ROWS, sequence=2), 1))
            await upload.ack(2)
            learner.wait_for(lambda: learner.behavior(NAME).episodes == 1, "the episode with rows")
            await upload.finish()
            await actor.close()
        assert learner.is_running
        assert learner.behavior(NAME).mean_return_100 == 0.0
        (line,) = learner.events("episodes_refused")
        assert (line["actor"], line["reason"], line["episodes"]) == ("inventor", "without_rows", 100)
