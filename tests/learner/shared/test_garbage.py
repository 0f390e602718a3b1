"""Tests that long full collections become rare."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from learner.shared.garbage import FROZEN_SECONDS, LONG_SECONDS, LongCollections


class Clock:
    """Goes on by a step at each look.

    Attributes:
        now: Seconds.
        step: Seconds that pass from one look to the next.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.step = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        self.now += self.step
        return self.now


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Returns the clock of watched collections."""
    clock = Clock()
    watched = LongCollections(clock)
    gc.unfreeze()
    watched.start()
    yield clock
    watched.stop()
    assert gc.get_freeze_count() == 0


def test_survivors_of_a_long_collection_are_frozen(clock: Clock) -> None:
    """A short collection freezes nothing, a long one all that survived it, and new garbage is still found."""
    gc.collect()
    assert gc.get_freeze_count() == 0
    clock.step = 2 * LONG_SECONDS
    gc.collect(1)
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() > 1000
    new = weakref.ref(Node())
    assert new() is not None
    gc.collect()
    assert new() is None


def test_what_died_while_frozen_is_found_later(clock: Clock) -> None:
    """A frozen cycle that dies is collected after the frozen time."""
    cyclic = Node()
    gone = weakref.ref(cyclic)
    clock.step = 2 * LONG_SECONDS
    gc.collect()
    del cyclic
    clock.step = 0.0
    gc.collect()
    assert gone() is not None
    clock.now += FROZEN_SECONDS
    gc.collect()
    assert gone() is None
    assert gc.get_freeze_count() == 0
