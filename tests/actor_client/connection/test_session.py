"""Tests the session's state machine and its checks of answers."""

from __future__ import annotations

import re

import pytest
from rollcast.errors import WireError
from rollcast.limits import MAX_CHUNK_BYTES, OLDEST_PROTOCOL_REVISION, PROTOCOL_REVISION
from rollcast.v1 import session_pb2

from actor_client.connection.session import Opening, Session
from actor_client.exits import ActorError, ExitCode


def answer(**changes: object) -> session_pb2.OpenSessionResponse:
    """Returns a valid answer."""
    values: dict[str, object] = {
        "protocol_revision": 1,
        "session_id": "s1",
        "epoch": 1,
        "generation": 4,
        "next_sequence": 1,
        "limits": session_pb2.ChunkLimits(max_chunk_bytes=1 << 20),
    }
    return session_pb2.OpenSessionResponse(**(values | changes))  # type: ignore[arg-type]


def test_openings_are_told_apart() -> None:
    """Each kind of opening is recognized: fresh, resumed, resumed after a restart, and lost."""
    session = Session("actor", "test")
    assert not session.request([], 0).HasField("resume")
    assert session.opened(answer())[0] is Opening.FRESH
    resume = session.request([session_pb2.ActorBooks(acked_steps=9)], 12).resume
    assert (resume.session_id, resume.epoch, resume.generation, resume.acked_through) == ("s1", 1, 4, 12)
    assert resume.books[0].acked_steps == 9
    assert session.opened(answer(resumed=True, epoch=2, next_sequence=13))[0] is Opening.RESUMED
    assert session.opened(answer(resumed=True, epoch=3, generation=5))[0] is Opening.NEW_GENERATION
    assert session.opened(answer(session_id="s2"))[0] is Opening.LOST
    assert session.opened(answer(session_id="s3", resumed=True))[0] is Opening.LOST


def test_a_forgotten_session_is_not_asked_for_and_is_lost() -> None:
    """After a session is lost, the actor does not ask for it again."""
    session = Session("actor", "test")
    session.opened(answer())
    session.forget()
    assert not session.request([], 0).HasField("resume")
    assert session.opened(answer(resumed=True))[0] is Opening.LOST
    assert session.request([], 0).HasField("resume")


@pytest.mark.parametrize(
    "changes", [{"session_id": ""}, {"generation": 0}, {"next_sequence": 0}, {"limits": session_pb2.ChunkLimits()}]
)
def test_nonsense_is_refused(changes: dict[str, object]) -> None:
    """Answers without session, generation, sequence or limits are refused."""
    with pytest.raises(WireError, match="the learner's answer to OpenSession has"):
        Session("actor", "test").opened(answer(**changes))


@pytest.mark.parametrize("revision", [OLDEST_PROTOCOL_REVISION, PROTOCOL_REVISION])
def test_known_revisions_are_accepted(revision: int) -> None:
    """The actor works with every revision from the oldest to its own."""
    assert Session("actor", "test").opened(answer(protocol_revision=revision))[0] is Opening.FRESH


@pytest.mark.parametrize(("revision", "side"), [(OLDEST_PROTOCOL_REVISION - 1, "learner"), (99, "actor")])
def test_a_revision_that_the_actor_does_not_know_is_refused_by_name(revision: int, side: str) -> None:
    """An unknown revision ends the actor with the revision, the known ones and the side to update; nothing is stored."""
    session = Session("actor", "test")
    with pytest.raises(ActorError, match=rf"version '9.9'.*revision {revision};.*: update the {side}") as caught:
        session.opened(answer(protocol_revision=revision, server_version="9.9"))
    assert caught.value.exit_code is ExitCode.PROTOCOL_TOO_OLD
    assert not session.session_id


def test_limits_have_defaults_and_caps() -> None:
    """Omitted limits have defaults, and a chunk never exceeds the limit of the channel."""
    _, run = Session("actor", "test").opened(answer(limits=session_pb2.ChunkLimits(max_chunk_bytes=1 << 40)))
    assert run.limits.max_chunk_bytes == MAX_CHUNK_BYTES
    assert 0 < run.limits.target_chunk_bytes <= MAX_CHUNK_BYTES
    assert run.limits.max_chunk_age_seconds > 0
    assert run.limits.max_chunk_steps == 0
    assert run.lease_seconds > 0


@pytest.mark.parametrize("given", ["actor", None])
def test_processes_are_told_apart(given: str | None) -> None:
    """A process keeps its instance id; a generated name does not reveal the machine and stays the same."""
    session, other = Session(given, "test"), Session(given, "test")
    first = session.request([], 0)
    assert session.request([], 0) == first
    assert other.request([], 0).instance_id != first.instance_id
    if given is None:
        assert re.fullmatch("actor-[0-9a-f]{4}", first.actor_name)
        assert first.instance_id.startswith(first.actor_name.removeprefix("actor-"))
