"""Tests which faults shut a place out, and for how long."""

from __future__ import annotations

import pytest
from rollcast.errors import MalformedChunk, NotQuarantined, Quarantined

from learner.service.ingest.quarantine import (
    FAULT_SECONDS,
    LONGEST_SECONDS,
    MAX_FAULTS,
    MAX_KEPT,
    SHORTEST_SECONDS,
    Quarantine,
)
from tests.clock import Clock

PLACE = ("lab", "walker")
FAULT = MalformedChunk("a column has a wrong shape")


@pytest.fixture
def clock() -> Clock:
    """Returns a clock."""
    return Clock()


@pytest.fixture
def quarantine(clock: Clock) -> Quarantine:
    """Returns a quarantine with that clock."""
    return Quarantine(clock)


def fault(quarantine: Quarantine, times: int = MAX_FAULTS) -> float | None:
    """Notes faults of the place; returns the seconds after the last."""
    return [quarantine.note(PLACE, FAULT) for _ in range(times)][-1]


def test_the_third_fault_shuts_out(clock: Clock, quarantine: Quarantine) -> None:
    """Two faults do nothing; the third shuts this place out, and no other, for a minute."""
    assert fault(quarantine, MAX_FAULTS - 1) is None
    quarantine.check(PLACE)
    assert quarantine.note(PLACE, FAULT) == SHORTEST_SECONDS
    with pytest.raises(Quarantined, match="a column has a wrong shape") as refused:
        quarantine.check(PLACE)
    assert refused.value.retry_after_seconds == SHORTEST_SECONDS
    quarantine.check(("lab", "runner"))
    quarantine.check(("other", "walker"))
    clock.now += SHORTEST_SECONDS
    quarantine.check(PLACE)
    assert quarantine.view() == ()


def test_faults_count_for_ten_minutes(clock: Clock, quarantine: Quarantine) -> None:
    """A fault that is older than ten minutes counts no more."""
    fault(quarantine, MAX_FAULTS - 1)
    clock.now += FAULT_SECONDS + 1
    assert fault(quarantine, MAX_FAULTS - 1) is None
    assert fault(quarantine, 1) == SHORTEST_SECONDS


def test_each_quarantine_is_twice_as_long(clock: Clock, quarantine: Quarantine) -> None:
    """Quarantines take 1, 2, 4 ... 60 minutes; after an hour without a fault, a minute again."""
    lengths = []
    for _ in range(8):
        seconds = fault(quarantine)
        assert seconds is not None
        lengths.append(seconds / 60)
        clock.now += seconds
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60]
    clock.now += LONGEST_SECONDS + 1
    assert fault(quarantine) == SHORTEST_SECONDS


def test_an_operator_releases(quarantine: Quarantine) -> None:
    """A release lets the place in and forgets its faults; a name that is not shut out is an error."""
    fault(quarantine)
    (view,) = quarantine.view()
    assert (view.principal, view.name, view.times, view.fault) == (*PLACE, 1, str(FAULT))
    with pytest.raises(NotQuarantined):
        quarantine.release("walker", "other")
    assert quarantine.release("walker") == 1
    quarantine.check(PLACE)
    assert fault(quarantine) == SHORTEST_SECONDS
    assert quarantine.release("walker", "lab") == 1
    with pytest.raises(NotQuarantined, match="no actor 'walker' is shut out"):
        quarantine.release("walker")


def test_memory_is_bounded(quarantine: Quarantine) -> None:
    """Faults under very many names forget the oldest places and take no more memory."""
    for number in range(MAX_KEPT + 10):
        quarantine.note(("", str(number)), MalformedChunk("x" * 100_000))
    assert len(quarantine._records) == MAX_KEPT
    assert max(len(record.last_fault) for record in quarantine._records.values()) < 1000
