"""What an actor asks for when it opens a session, and what becomes of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from rollcast.limits import PROTOCOL_REVISION

from learner.ingest.session import ActorCounters, ActorSession


class Record(Protocol):
    """Keeps what is received where it outlives the process; see `learner.checkpoints.received`."""

    def note(self, session_id: str, index: int, behavior: str, *, total: int, steps: int, through: int) -> None:
        """Stores what was received in a session of a behavior."""

    def end(self, session_id: str, indices: Iterable[int]) -> None:
        """Notes that a session has ended."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """An actor's previous session, as the actor reports it; see ResumeSession in session.proto."""

    session_id: str
    epoch: int
    generation: int
    acked_through: int
    reports: tuple[ActorCounters, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """An actor's request for a session."""

    actor_name: str
    instance_id: str
    resume: Resumption | None = None
    principal: str = ""
    max_sessions: int | None = None
    revision: int = PROTOCOL_REVISION


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer to an `Opening`.

    Attributes:
        session: The actor's session.
        resumed: Whether the requested session resumes, with its sequence.
        ended: Sessions that ended because of the opening.
        settled_through: Last sequence of the requested session that was received; 0 if unknown.
    """

    session: ActorSession
    resumed: bool
    ended: tuple[ActorSession, ...] = ()
    settled_through: int = 0


@dataclass(frozen=True, slots=True)
class Expired:
    """The sessions whose time has run out.

    Attributes:
        away: They may return to their sessions.
        ended: They have ended. Those that a restarted learner awaited are not among them.
    """

    away: tuple[ActorSession, ...] = ()
    ended: tuple[ActorSession, ...] = ()
