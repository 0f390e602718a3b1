"""Tests the pinned versions of a behavior."""

from __future__ import annotations

from actor_client.connection.pins import MAX_PINS, RETRY_SECONDS, Pins
from actor_client.rollout.assignment import Pinned
from tests.actor_client.connection.harness import BarePolicy


class Clock:
    """Counts wakes and tells the time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wakes = 0
        self.pins = Pins(self.wake, lambda: self.now)

    def wake(self) -> None:
        """Counts."""
        self.wakes += 1


def key(version: int, digest: bytes = b"x") -> Pinned:
    """Returns the key of a version."""
    return Pinned(1, version, digest)


def test_a_bounded_number_of_versions_stays_loaded() -> None:
    """The version used longest ago is forgotten, and requested again when it is needed."""
    clock = Clock()
    for version in range(MAX_PINS):
        clock.pins.get(key(version)).policy = BarePolicy(1, version, b"")
    assert (clock.wakes, clock.pins.open()) == (MAX_PINS, [])
    clock.pins.get(key(0))
    clock.pins.get(key(99)).policy = BarePolicy(1, 99, b"")
    assert clock.wakes == MAX_PINS + 1
    assert clock.pins.get(key(0)).policy is not None
    assert clock.pins.get(key(1)).policy is None
    assert [pin.key for pin in clock.pins.open()] == [key(1)]


def test_a_version_that_is_not_held_is_requested_again_after_a_while() -> None:
    """Only opponents are requested again, and not at once."""
    clock = Clock()
    pin = clock.pins.get(key(4), retries=True)
    clock.pins.note_failed(pin)
    assert clock.pins.open() == []
    clock.now = RETRY_SECONDS / 2
    assert clock.pins.get(key(4), retries=True).failed_at == 0.0
    clock.now = RETRY_SECONDS
    assert clock.pins.get(key(4)).failed_at == 0.0
    clock.pins.get(key(4), retries=True)
    assert (clock.pins.open(), clock.wakes) == ([pin], 2)


def test_a_restart_keeps_what_has_a_digest() -> None:
    """Policies with a digest stay; versions without one, which may have changed, are forgotten."""
    clock = Clock()
    clock.pins.get(key(1)).policy = BarePolicy(1, 1, b"")
    clock.pins.get(key(2, b"")).policy = BarePolicy(1, 2, b"")
    clock.pins.get(key(3))
    clock.pins.restart()
    assert clock.pins.get(key(1)).policy is not None
    assert clock.pins.get(key(2, b"")).policy is None
    assert {pin.key.version for pin in clock.pins.open()} == {2}
