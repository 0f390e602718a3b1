"""Assignments: what the run asks of all actors beyond learning with the newest policy, and evaluations of single ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2

from learner.ingest.session import ActorSession
from learner.link.evaluation import Order

Part = policy_pb2.BehaviorAssignment
_LEARN: Final = policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN)


class Assignments:
    """The assignment of the run, and those of single sessions over it. For the event loop alone.

    There is none until something other than the default is asked for. While a session evaluates, the run's assignment
    waits: its environments are reset afterwards anyway, and an evaluation is of one setting of theirs.

    Args:
        task: what a behavior id is asked for unless it is ordered something; None lets it learn.

    Attributes:
        has_task: whether all are asked for something other than to learn.
    """

    def __init__(self, task: Part | None = None) -> None:
        self.has_task = task is not None
        self._usual = task or Part(role=_LEARN)
        self._current: policy_pb2.Assignment | None = None
        self._players: frozenset[str] | None = None
        self._last_id = 0
        self._own: dict[str, bytes] = {}
        self._playing: set[str] = set()

    def replace(self, assignment: policy_pb2.Assignment, players: frozenset[str] | None = None) -> None:
        """Makes an assignment that of the run, under the next id.

        Args:
            assignment: what is asked for.
            players: sessions that play the round of lock-step which it begins; others wait. None for all.
        """
        self._players = players
        self._current = policy_pb2.Assignment()
        self._current.CopyFrom(assignment)
        self._current.id = self._next_id()

    def is_playing(self, session_id: str) -> bool:
        """Says whether a session was ordered an evaluation."""
        return session_id in self._playing

    def opening(self, session_id: str, *, resumed: bool) -> policy_pb2.Assignment | None:
        """Returns the assignment with which a session opens; see `Hub.opening_assignment`."""
        own = self._own.get(session_id) if resumed else None
        if own is not None:
            return policy_pb2.SubscribeResponse.FromString(own).assignment
        return self._current if self._current is None or resumed else _without_round(self._current)

    def for_session(self, session: ActorSession) -> bytes | None:
        """Returns the message that brings a session what it is asked for now; None for nothing but to learn."""
        if session.session_id in self._own:
            return self._own[session.session_id]
        if self.has_task:
            return self._keep(session, self._part)
        if self._current is None:
            return None
        waits = self._players is not None and session.session_id not in self._players
        message = policy_pb2.SubscribeResponse(assignment=_without_round(self._current) if waits else self._current)
        if not message.assignment.behaviors:
            message.assignment.behaviors.extend(_each(session, self._part))
        return message.SerializeToString()

    def renewed(self, session: ActorSession) -> bytes | None:
        """Returns the same after a change of the run's assignment, or of the session's behaviors; None if that waits."""
        if self.is_playing(session.session_id):
            return None
        self._own.pop(session.session_id, None)
        return self.for_session(session)

    def order(self, session: ActorSession, order: Order) -> bytes:
        """Orders an evaluation; the number under which it is sent is noted in the order."""
        self._playing.add(session.session_id)

        def part(behavior: str, team: int) -> Part:
            generation, version = order.versions.get(behavior, (0, 0))
            return Part(
                behavior=behavior,
                team=team,
                role=_LEARN,
                purpose=Purpose.EVALUATE,
                deterministic=order.is_deterministic,
                generation=generation,
                version=version,
            )

        return self._keep(session, part, order)

    def release(self, session: ActorSession) -> bytes:
        """Lets a session return to the assignment of the run."""
        self._playing.discard(session.session_id)
        return self._keep(session, self._part)

    def forget(self, session_id: str) -> None:
        """Forgets a session that is over."""
        self._own.pop(session_id, None)
        self._playing.discard(session_id)

    def _next_id(self) -> int:
        """Returns a number above all that were given: an actor takes no older assignment for a newer one."""
        self._last_id += 1
        return self._last_id

    def _part(self, behavior: str, team: int) -> Part:
        part = Part()
        part.CopyFrom(self._usual)
        part.behavior, part.team = behavior, team
        return part

    def _keep(self, session: ActorSession, part: Callable[[str, int], Part], order: Order | None = None) -> bytes:
        assignment = policy_pb2.Assignment() if self._current is None else _without_round(self._current)
        del assignment.behaviors[:]
        assignment.id = self._next_id()
        assignment.behaviors.extend(_each(session, part))
        if order is not None:
            assignment.episodes = order.episodes
            order.assignment_id = assignment.id
        message = policy_pb2.SubscribeResponse(assignment=assignment).SerializeToString()
        self._own[session.session_id] = message
        return message


def _each(session: ActorSession, part: Callable[[str, int], Part]) -> list[Part]:
    """Returns a part for each behavior id of a session."""
    return [part(each.behavior, team) for each in session.accounts.values() for team in sorted(each.teams)]


def _without_round(assignment: policy_pb2.Assignment) -> policy_pb2.Assignment:
    """Returns an assignment without its round of lock-step: a session that gets it joins with the next round."""
    told = policy_pb2.Assignment()
    told.CopyFrom(assignment)
    told.lockstep_round = 0
    told.reset = policy_pb2.RESET_MODE_NONE
    return told
