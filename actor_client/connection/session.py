"""The session of one actor process, as a small state machine without input or output.

FRESH --opened--> OPEN --opened (resumed, same generation)--> OPEN
                   |  --opened (resumed, another generation)--> OPEN, the window is void
                   |  --opened (not resumed)--> OPEN as another session, the window is void
                   `-closed--> CLOSED
"""

import enum
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
from rollcast import limits
from rollcast.errors import WireError
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.exits import ActorError, ExitCode
from actor_client.rollout.link import ChunkLimits

# Used if the learner answers zero.
DEFAULT_LEASE_SECONDS = 30.0
DEFAULT_CHUNK_AGE_SECONDS = 0.05


class Opening(enum.Enum):
    """The effect of an opening on the actor's data."""

    FRESH = enum.auto()
    """The first session of this process."""
    RESUMED = enum.auto()
    """The session continues: unacked chunks are resent."""
    NEW_GENERATION = enum.auto()
    """The session continues with a restarted learner: policies and credit start over."""
    LOST = enum.auto()
    """The learner does not know the session; this is a new one."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The learner's answer to an opening.

    Attributes:
        run_id: Name of the run.
        generation: Grows with each start of the learner.
        actor_index: The actor's index in the run.
        run_seed: Environment seeds derive from it.
        behaviors: Names in the run file; empty if any name is allowed.
        limits: Limits on chunks.
        lease_seconds: Seconds without a renewal after which the session ends.
        column_encodings: Encodings that the learner supports.
        environment_settings: Settings for simulators that take arguments.
        engine_settings: Settings for game engines.
        server_version: The learner's version, for logs.
        assignment: The present assignment; id 0 asks only for learning.
        settled_through: The last chunk of the requested session that the learner received; 0 if unknown.
    """

    run_id: str
    generation: int
    actor_index: int
    run_seed: int
    behaviors: tuple[str, ...]
    limits: ChunkLimits
    lease_seconds: float
    column_encodings: frozenset[str] = frozenset()
    environment_settings: session_pb2.EnvironmentSettings = field(default_factory=session_pb2.EnvironmentSettings)
    engine_settings: session_pb2.EngineSettings = field(default_factory=session_pb2.EngineSettings)
    server_version: str = ""
    assignment: policy_pb2.Assignment = field(default_factory=policy_pb2.Assignment)
    settled_through: int = 0


class Session:
    """The actor's session in the run.

    Args:
        actor_name: A readable name, which also keeps the actor_index stable; None generates a unique one.
        client_version: Version for the learner's log.
        opponent: Name of the script that plays opponents; empty for none.

    Attributes:
        instance_id: Id of this process.
        session_id: Id of the session; empty before the first opening.
        epoch: Grows with each opening of one session.
        generation: The learner's start at the last opening.
        next_sequence: The number that the learner expected at the last opening.
    """

    def __init__(self, actor_name: str | None, client_version: str, opponent: str = "") -> None:
        self._opponent = opponent
        self._client_version = client_version
        self.instance_id = str(uuid.uuid4())
        self._actor_name = actor_name or f"actor-{self.instance_id[:4]}"
        self.session_id = ""
        self.epoch = 0
        self.generation = 0
        self.next_sequence = 1
        self._forgotten = False

    def forget(self) -> None:
        """Abandons the session, because both sides disagree on its numbers; the next opening begins another one."""
        self._forgotten = True

    def request(self, books: Sequence[session_pb2.ActorBooks], acked_through: int) -> session_pb2.OpenSessionRequest:
        """Returns the message that opens the session, or resumes it after a break.

        Args:
            books: The actor's counters in this session.
            acked_through: The last number that the learner acked.
        """
        request = session_pb2.OpenSessionRequest(
            protocol_revision=limits.PROTOCOL_REVISION,
            actor_name=self._actor_name,
            instance_id=self.instance_id,
            client_version=self._client_version,
            policy_encodings=["zstd"],
            opponent=self._opponent,
            opponent_by_seat=bool(self._opponent),
        )
        if self.session_id and not self._forgotten:
            request.resume.CopyFrom(
                session_pb2.ResumeSession(
                    session_id=self.session_id,
                    epoch=self.epoch,
                    generation=self.generation,
                    acked_through=acked_through,
                    books=books,
                )
            )
        return request

    def opened(self, response: session_pb2.OpenSessionResponse) -> tuple[Opening, RunInfo]:
        """Processes the answer to an opening.

        Raises:
            ActorError: The learner uses a revision of the protocol that this actor does not know.
            WireError: The answer names no session, or limits under which nothing can be sent.
        """
        _check_revision(response)
        if not response.session_id or not response.next_sequence or not response.generation:
            raise _nonsense("no session id, generation or next sequence number")
        if response.limits.max_chunk_bytes == 0:
            raise _nonsense("max_chunk_bytes 0")
        if not self.session_id:
            opening = Opening.FRESH
        elif self._forgotten or not response.resumed or response.session_id != self.session_id:
            opening = Opening.LOST
        elif response.generation != self.generation:
            opening = Opening.NEW_GENERATION
        else:
            opening = Opening.RESUMED
        self._forgotten = False
        self.session_id = response.session_id
        self.epoch = response.epoch
        self.generation = response.generation
        self.next_sequence = response.next_sequence
        return opening, _run_info(response)


def _check_revision(response: session_pb2.OpenSessionResponse) -> None:
    """Checks the revision of the protocol with which the learner answers.

    A learner answers with the smaller of both sides' revisions, so a larger one is no revision that both know.

    Raises:
        ActorError: The revision is not one of this actor's.
    """
    revision = response.protocol_revision
    if limits.OLDEST_PROTOCOL_REVISION <= revision <= limits.PROTOCOL_REVISION:
        return
    newer = revision > limits.PROTOCOL_REVISION
    raise ActorError(
        ExitCode.PROTOCOL_TOO_OLD,
        f"the learner (version {response.server_version[:64]!r}) answers with protocol revision {revision}; "
        f"this actor works with {limits.OLDEST_PROTOCOL_REVISION} to {limits.PROTOCOL_REVISION}: update the "
        f"{'actor' if newer else 'learner'}",
    )


def _run_info(response: session_pb2.OpenSessionResponse) -> RunInfo:
    """Returns the answer as a value, with its limits capped at those of a channel."""
    asked = response.limits
    max_chunk_bytes = min(asked.max_chunk_bytes, limits.MAX_CHUNK_BYTES)
    return RunInfo(
        run_id=response.run_id,
        generation=response.generation,
        actor_index=response.actor_index,
        run_seed=response.run_seed,
        behaviors=tuple(response.behaviors),
        limits=ChunkLimits(
            target_chunk_bytes=min(asked.target_chunk_bytes or limits.TARGET_CHUNK_BYTES, max_chunk_bytes),
            max_chunk_bytes=max_chunk_bytes,
            max_chunk_age_seconds=asked.max_chunk_age_ms / 1000 or DEFAULT_CHUNK_AGE_SECONDS,
            max_chunk_steps=asked.max_chunk_steps,
        ),
        lease_seconds=response.lease_ms / 1000 or DEFAULT_LEASE_SECONDS,
        column_encodings=frozenset(response.column_encodings),
        environment_settings=response.environment_settings,
        engine_settings=response.engine_settings,
        server_version=response.server_version,
        assignment=response.assignment,
        settled_through=response.settled_through,
    )


def _nonsense(what: str) -> WireError:
    return WireError(f"the learner's answer to OpenSession has {what}", code=grpc.StatusCode.INTERNAL)
