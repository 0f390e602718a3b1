"""Tracks assignments: what all actors do besides learning with the newest policy, and evaluations and matches of one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2

from learner.link.matches import Match, Seat
from learner.service.ingest.matches import GivenMatches
from learner.service.ingest.session import ActorSession

Part = policy_pb2.BehaviorAssignment
_LEARN: Final = policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN)
_IDLE: Final = policy_pb2.AssignmentRole.ValueType(AssignmentRole.IDLE)


class Assignments:
    """Tracks the run's assignment, and the matches of single sessions. For the event loop alone.

    There is no assignment until something other than the default is requested. The run's assignment and a match wait
    while a session evaluates: an evaluation uses one setting of the environments, which are reset afterwards anyway.
    Behavior ids with self-play wait until their session has a match.

    Args:
        task: What a behavior id does without an order; None lets it learn, or play matches.
        plays_matches: Returns whether a behavior has self-play, by its name.

    Attributes:
        has_task: Whether all actors do something other than learn.
        given: The matches that sessions were told of.
    """

    def __init__(self, task: Part | None = None, *, plays_matches: Callable[[str], bool] = lambda _: False) -> None:
        self.has_task = task is not None
        self._plays_matches = plays_matches
        self._matches: dict[str, Match] = {}
        self.given = GivenMatches()
        self._usual = task or Part(role=_LEARN)
        self._current: policy_pb2.Assignment | None = None
        self._players: frozenset[str] | None = None
        self._last_id = 0
        self._own: dict[str, bytes] = {}
        self._orders: dict[str, tuple[int, int]] = {}  # evaluations by session: match number, assignment id

    def replace(self, assignment: policy_pb2.Assignment, players: frozenset[str] | None = None) -> None:
        """Replaces the run's assignment, and gives the new one the next id.

        Args:
            assignment: The new assignment.
            players: Sessions that play the lock-step round of the assignment; others wait. None for all.
        """
        self._players = players
        self._current = policy_pb2.Assignment()
        self._current.CopyFrom(assignment)
        self._current.id = self._next_id()

    @property
    def playing(self) -> Collection[str]:
        """Ids of the sessions that are playing an evaluation."""
        return self._orders.keys()

    def is_playing(self, session_id: str) -> bool:
        """Returns whether a session is playing an evaluation."""
        return session_id in self._orders

    def order_numbers(self, session_id: str, assignments: NDArray[Any]) -> NDArray[np.uint64]:
        """Returns the numbers of the evaluations that a session received under these assignment ids; 0 for all others.

        Args:
            session_id: The session that sent the records.
            assignments: Assignment ids, `[N]`.
        """
        number, sent_as = self._orders.get(session_id, (0, 0))
        return np.where(assignments == sent_as, np.uint64(number), np.uint64(0))

    def opening(self, session_id: str, *, resumed: bool) -> policy_pb2.Assignment | None:
        """Returns the assignment that an actor receives when it opens its session, before its first step.

        Args:
            session_id: The session. If it has an order, it keeps the order even if the run's assignment is newer.
            resumed: Whether the session resumes, and so may have missed a reset of its environments; those of a new
                session have just begun.
        """
        own = self._own.get(session_id) if resumed else None
        if own is not None:
            return policy_pb2.SubscribeResponse.FromString(own).assignment
        return self._current if self._current is None or resumed else _without_round(self._current)

    def for_session(self, session: ActorSession) -> bytes | None:
        """Returns the message with a session's current assignment; None if it only learns."""
        if session.session_id in self._own:
            return self._own[session.session_id]
        if self.has_task or self._has_matches(session):
            return self._usually(session)
        if self._current is None:
            return None
        waits = self._players is not None and session.session_id not in self._players
        message = policy_pb2.SubscribeResponse(assignment=_without_round(self._current) if waits else self._current)
        if not message.assignment.behaviors:
            message.assignment.behaviors.extend(_each(session, self._part_of(session)))
        return message.SerializeToString()

    def renewed(self, session: ActorSession) -> bytes | None:
        """Returns the message for a changed assignment or changed behaviors; None while the session evaluates."""
        if self.is_playing(session.session_id):
            return None
        self._own.pop(session.session_id, None)
        return self.for_session(session)

    def release(self, session: ActorSession) -> bytes:
        """Returns a session to the assignment of the run."""
        self._orders.pop(session.session_id, None)
        return self._usually(session)

    def learns(self, session_id: str, behavior: str) -> bool:
        """Returns whether any behavior id of a behavior with self-play learns in the session's match."""
        match = self._matches.get(session_id)
        return match is not None and any(
            seat.behavior == behavior and seat.role is AssignmentRole.LEARN for seat in match.seats
        )

    def play(self, session: ActorSession, match: Match) -> bytes | None:
        """Gives a session its match under the next id; returns None for one that waits while the session evaluates."""
        if match.is_evaluation:
            seated = bool(match.seats)
            part = self._part_in(match) if seated else _measured(match)
            message = self._keep(session, part, match if seated else None, episodes=match.episodes, resets=seated)
            self._orders[session.session_id] = match.number, self._last_id
            return message
        self._matches[session.session_id] = match
        if self.is_playing(session.session_id):
            return None
        return self._usually(session, resets=match.episodes > 0)

    def forget(self, session_id: str) -> None:
        """Forgets a session that has ended."""
        self._own.pop(session_id, None)
        self._matches.pop(session_id, None)
        self.given.forget(session_id)
        self._orders.pop(session_id, None)

    def _next_id(self) -> int:
        """Returns an id larger than all former ones: actors ignore an assignment older than theirs."""
        self._last_id += 1
        return self._last_id

    def _has_matches(self, session: ActorSession) -> bool:
        return any(self._plays_matches(each.behavior) for each in session.accounts.values())

    def _usually(self, session: ActorSession, *, resets: bool = False) -> bytes:
        """Returns the message with what a session does without an order."""
        match = self._matches.get(session.session_id)
        episodes = 0 if match is None else match.episodes
        return self._keep(session, self._part_in(match), match, episodes=episodes, resets=resets)

    def _part_of(self, session: ActorSession) -> Callable[[str, int], Part]:
        """Returns what a session's behavior ids do without an order."""
        return self._part_in(self._matches.get(session.session_id))

    def _part_in(self, match: Match | None) -> Callable[[str, int], Part]:
        """Returns what behavior ids do in a match, and those that have no seat in it."""
        seats = {} if match is None else {(seat.behavior, seat.team): seat for seat in match.seats}

        def part(behavior: str, team: int) -> Part:
            seat = seats.get((behavior, team))
            if match is not None and seat is not None:
                return _seated(match, seat)
            if not self.has_task and self._plays_matches(behavior):
                return Part(behavior=behavior, team=team, role=_IDLE)
            usual = Part()
            usual.CopyFrom(self._usual)
            usual.behavior, usual.team = behavior, team
            return usual

        return part

    def _keep(
        self,
        session: ActorSession,
        part: Callable[[str, int], Part],
        match: Match | None = None,
        *,
        episodes: int = 0,
        resets: bool = False,
    ) -> bytes:
        assignment = policy_pb2.Assignment() if self._current is None else _without_round(self._current)
        if resets:
            assignment.reset = policy_pb2.RESET_MODE_NOW
        del assignment.behaviors[:]
        assignment.id = self._next_id()
        assignment.behaviors.extend(_each(session, part))
        assignment.episodes = episodes
        message = policy_pb2.SubscribeResponse(assignment=assignment).SerializeToString()
        self._own[session.session_id] = message
        if match is not None:
            self.given.note(session.session_id, assignment.id, match)
        return message


def _measured(match: Match) -> Callable[[str, int], Part]:
    """Returns the part of each behavior id in an evaluation without opponents."""

    def part(behavior: str, team: int) -> Part:
        generation, version = match.versions.get(behavior, (0, 0))
        return Part(
            behavior=behavior,
            team=team,
            role=_LEARN,
            purpose=Purpose.EVALUATE,
            deterministic=match.is_deterministic,
            generation=generation,
            version=version,
        )

    return part


def _seated(match: Match, seat: Seat) -> Part:
    part = Part(
        behavior=seat.behavior,
        team=seat.team,
        role=policy_pb2.AssignmentRole.ValueType(seat.role),
        match=match.number,
        random_steps=match.random_steps,
        deterministic=seat.is_deterministic,
    )
    if seat.policy is not None:
        part.generation, part.version, part.sha256 = seat.policy.generation, seat.policy.version, seat.policy.sha256
    return part


def _each(session: ActorSession, part: Callable[[str, int], Part]) -> list[Part]:
    """Returns a part for each behavior id of a session."""
    return [part(each.behavior, team) for each in session.accounts.values() for team in sorted(each.teams)]


def _without_round(assignment: policy_pb2.Assignment) -> policy_pb2.Assignment:
    """Returns an assignment without its lock-step round; a session that receives it joins the next round."""
    told = policy_pb2.Assignment()
    told.CopyFrom(assignment)
    told.lockstep_round = 0
    told.reset = policy_pb2.RESET_MODE_NONE
    return told
