"""Tests credit and holds of a behavior."""

from __future__ import annotations

from rollcast.v1 import trajectory_pb2
from rollcast.v1.trajectory_pb2 import HOLD_REASON_BEHIND, HOLD_REASON_UPDATING, Credit, Hold

from actor_client.connection.gate import ActiveHold, Gate


def test_a_new_gate_is_closed() -> None:
    """A new gate has no credit, so nothing is stepped or sent."""
    gate = Gate(1)
    assert not gate.has_room(0, 1)
    assert not gate.admits(1)


def test_both_limits_bind() -> None:
    """Both steps and bytes must be left."""
    gate = Gate(1)
    gate.grant(Credit(steps_through=10))
    assert not gate.has_room(0, 1)
    gate.grant(Credit(bytes_through=100))
    assert gate.has_room(0, 10)
    assert not gate.has_room(1, 10)
    gate.grant(Credit(steps_through=9, bytes_through=99))  # credit never falls
    assert gate.has_room(0, 10)
    gate.sealed(100)
    assert not gate.has_room(0, 1)
    assert gate.admits(100)
    assert not gate.admits(101)


def test_a_quota_binds_instead_of_the_credit_in_steps() -> None:
    """The step that reaches it may pass it; it may fall; a learner without quotas sends none."""
    gate = Gate(1)
    gate.grant(Credit(steps_through=100, bytes_through=100, quota_through=10))
    assert gate.has_room(0, 8)
    assert gate.has_room(8, 8)
    assert not gate.has_used_quota(9)
    assert not gate.has_room(10, 1)
    assert gate.has_used_quota(10)
    gate.grant(Credit(steps_through=100, bytes_through=100, quota_through=0))
    assert not gate.has_room(0, 1)
    assert gate.has_used_quota(0)
    gate.grant(Credit(steps_through=100, bytes_through=100))
    assert gate.has_room(92, 8)
    assert not gate.has_used_quota(100)


def test_holds_are_by_reason() -> None:
    """Holds are identified by reason: a repeated hold counts once, and each reason ends separately."""
    gate = Gate(1)
    assert gate.apply(Hold(reason=HOLD_REASON_BEHIND, active=True))
    assert not gate.apply(Hold(reason=HOLD_REASON_BEHIND, active=True))
    assert gate.apply(Hold(reason=HOLD_REASON_UPDATING, active=True, until_version=4))
    assert gate.held(9)
    assert gate.apply(Hold(reason=HOLD_REASON_BEHIND, active=False))
    assert gate.held(3)
    assert not gate.held(4)
    assert not gate.apply(Hold(reason=HOLD_REASON_BEHIND, active=False))


def test_reasons_have_words() -> None:
    """Logs name known reasons, and show the number of unknown ones."""
    assert ActiveHold(trajectory_pb2.HOLD_REASON_PAUSED, 0).word == "paused"
    assert ActiveHold(99, 0).word == "99"
