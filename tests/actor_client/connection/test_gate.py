"""Credit and holds of one behavior."""

from __future__ import annotations

from rollcast.v1 import trajectory_pb2
from rollcast.v1.trajectory_pb2 import HOLD_REASON_BEHIND, HOLD_REASON_UPDATING, Credit, Hold

from actor_client.connection.gate import ActiveHold, Gate


def test_a_new_gate_is_closed() -> None:
    """Without credit nothing is stepped or sent."""
    gate = Gate(1)
    assert not gate.has_room(0, 1)
    assert not gate.admits(1)


def test_both_limits_bind() -> None:
    """Steps and bytes are needed."""
    gate = Gate(1)
    gate.grant(Credit(steps_through=10))
    assert not gate.has_room(0, 1)
    gate.grant(Credit(bytes_through=100))
    assert gate.has_room(0, 10)
    assert not gate.has_room(1, 10)
    gate.sealed(100)
    assert not gate.has_room(0, 1)
    assert gate.admits(100)
    assert not gate.admits(101)


def test_holds_are_by_reason() -> None:
    """The same hold twice is one; each reason ends on its own."""
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
    """Logs show words, and numbers for reasons of a later revision."""
    assert ActiveHold(trajectory_pb2.HOLD_REASON_PAUSED, 0).word == "paused"
    assert ActiveHold(99, 0).word == "99"
