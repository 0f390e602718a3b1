"""Assignments: what the run asks of all actors beyond learning with the newest policy, and evaluations of single ones."""

from __future__ import annotations

from collections.abc import Callable

from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2

from learner.ingest.session import ActorSession
from learner.link.evaluation import Order


class AssignmentBoard:
    """The assignment of the run. There is none until something other than the default is asked for."""

    def __init__(self) -> None:
        self._current: policy_pb2.Assignment | None = None
        self._players: frozenset[str] | None = None
        self._last_id = 0

    def replace(self, assignment: policy_pb2.Assignment, players: frozenset[str] | None = None) -> None:
        """Makes an assignment the current one, under the next id.

        Args:
            assignment: what is asked for.
            players: sessions that play the round of lock-step which it begins; others wait. None for all.
        """
        number = self.next_id()
        self._players = players
        current = policy_pb2.Assignment()
        current.CopyFrom(assignment)
        current.id = number
        self._current = current

    def next_id(self) -> int:
        """Returns a number above all that were given: an actor takes no older assignment for a newer one."""
        self._last_id += 1
        return self._last_id

    @property
    def current(self) -> policy_pb2.Assignment | None:
        """The assignment without behaviors filled in; None if there is none."""
        return self._current

    def for_session(self, session: ActorSession) -> bytes | None:
        """Returns the message that brings a session the current assignment, serialized; None if there is none.

        An assignment without behaviors lets each behavior id of the session learn.
        """
        if self._current is None:
            return None
        message = policy_pb2.SubscribeResponse(assignment=self._current)
        if self._players is not None and session.session_id not in self._players:
            wait(message.assignment)
        if not message.assignment.behaviors:
            message.assignment.behaviors.extend(
                policy_pb2.BehaviorAssignment(
                    behavior=account.behavior,
                    team=team,
                    role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN),
                )
                for account in session.accounts.values()
                for team in sorted(account.teams)
            )
        return message.SerializeToString()


def wait(assignment: policy_pb2.Assignment) -> None:
    """Takes the round of lock-step out of an assignment: who gets it joins with the next one."""
    assignment.lockstep_round = 0
    assignment.reset = policy_pb2.RESET_MODE_NONE


Part = policy_pb2.BehaviorAssignment


class OrderBoard:
    """Assignments of single sessions, over those of the run. For the event loop alone.

    While a session evaluates, what the run asks for waits: its environments are reset afterwards anyway, and an
    evaluation is of one setting of theirs.

    Args:
        board: what the run asks of everybody.
        duty: what a behavior id is asked for unless it is ordered something; None lets it learn.
    """

    def __init__(self, board: AssignmentBoard, duty: Part | None = None) -> None:
        self._board = board
        self._duty = duty
        self._own: dict[str, bytes] = {}
        self._playing: set[str] = set()

    @property
    def has_duty(self) -> bool:
        """Whether all are asked for something else than to learn."""
        return self._duty is not None

    def is_playing(self, session_id: str) -> bool:
        """Whether a session was ordered an evaluation."""
        return session_id in self._playing

    def for_session(self, session: ActorSession) -> bytes | None:
        """Returns the message that brings a session what it is asked for now; None for nothing but to learn."""
        if session.session_id in self._own:
            return self._own[session.session_id]
        return self._keep(session, self._usual) if self.has_duty else self._board.for_session(session)

    def own(self, session_id: str) -> policy_pb2.Assignment | None:
        """Returns what a session was told by itself; None where it was told what all are."""
        message = self._own.get(session_id)
        return None if message is None else policy_pb2.SubscribeResponse.FromString(message).assignment

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
                role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN),
                purpose=Purpose.EVALUATE,
                deterministic=order.is_deterministic,
                generation=generation,
                version=version,
            )

        return self._keep(session, part, order)

    def release(self, session: ActorSession) -> bytes:
        """Lets a session go back to what everybody does."""
        self._playing.discard(session.session_id)
        return self._keep(session, self._usual)

    def forget(self, session_id: str) -> None:
        """The session is over."""
        self._own.pop(session_id, None)
        self._playing.discard(session_id)

    def _usual(self, behavior: str, team: int) -> Part:
        part = Part(role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN))
        if self._duty is not None:
            part.CopyFrom(self._duty)
        part.behavior, part.team = behavior, team
        return part

    def _keep(self, session: ActorSession, part: Callable[[str, int], Part], order: Order | None = None) -> bytes:
        assignment = policy_pb2.Assignment()
        if self._board.current is not None:
            assignment.CopyFrom(self._board.current)
            wait(assignment)
        del assignment.behaviors[:]
        assignment.id = self._board.next_id()
        for account in session.accounts.values():
            assignment.behaviors.extend(part(account.behavior, team) for team in sorted(account.teams))
        if order is not None:
            assignment.episodes = order.episodes
            order.assignment_id = assignment.id
        message = policy_pb2.SubscribeResponse(assignment=assignment).SerializeToString()
        self._own[session.session_id] = message
        return message
