"""What actors are asked to do beyond the default, which is to learn with the newest policy."""

from __future__ import annotations

from rollcast.enums import AssignmentRole
from rollcast.v1 import policy_pb2

from learner.ingest.session import Session


class AssignmentBoard:
    """The assignment of the run. There is none until something other than the default is asked for."""

    def __init__(self) -> None:
        self._current: policy_pb2.Assignment | None = None
        self._last_id = 0

    def replace(self, assignment: policy_pb2.Assignment) -> None:
        """Makes an assignment the current one, under the next id."""
        self._last_id += 1
        current = policy_pb2.Assignment()
        current.CopyFrom(assignment)
        current.id = self._last_id
        self._current = current

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
