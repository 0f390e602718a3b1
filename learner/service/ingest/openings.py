"""What an actor asks for when it opens a session, and what becomes of sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rollcast.errors import NotAllowed, TooManySessions

from learner.service.ingest.session import ActorCounters, ActorSession
from learner.service.ingest.session_ids import short_id

FULL_RETRY_SECONDS: Final = 5.0
"""Seconds after which an actor that found no room tries again."""


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


def check_room(opening: Opening, present: int, *, of_principal: int, most: int, limited_by: str) -> None:
    """Refuses one more actor than the learner or the principal may have at once.

    Args:
        opening: The request.
        present: Actors that are present.
        of_principal: Those of the request's principal among them.
        most: Largest number of actors.
        limited_by: The setting or the limit of the system that determines `most`.

    Raises:
        TooManySessions: There is no room.
    """
    if opening.max_sessions is not None and of_principal >= opening.max_sessions:
        raise TooManySessions(
            f"{opening.principal} has {of_principal} sessions, the limit of its token: stop another of its actors, or raise "
            "max_sessions in the learner's token file",
            retry_after_seconds=FULL_RETRY_SECONDS,
            metadata={"principal": opening.principal, "max_sessions": str(opening.max_sessions)},
        )
    if present >= most:
        raise TooManySessions(
            f"{most} actors are connected, the limit of this learner ({limited_by}): raise the limit, or stop another actor",
            retry_after_seconds=FULL_RETRY_SECONDS,
            metadata={"max_sessions": str(most)},
        )


def check_owner(session: ActorSession, principal: str) -> None:
    """Checks that a session belongs to a principal; the refusal names no other principal.

    Raises:
        NotAllowed: It belongs to another one.
    """
    if session.principal != principal:
        raise NotAllowed(
            "the session belongs to another principal: open a session of your own",
            metadata={"session": short_id(session.session_id)},
        )
