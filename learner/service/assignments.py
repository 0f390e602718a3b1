"""What actors are asked to do beyond the default, which is to learn with the newest policy."""

from __future__ import annotations

from rollcast.enums import AssignmentRole
from rollcast.v1 import policy_pb2

from learner.ingest.session import Session


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

    def for_session(self, session: Session) -> bytes | None:
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
