"""Tests the waits between connection attempts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from actor_client.connection.backoff import BASE_SECONDS, LARGEST_CAP_SECONDS, SPREAD_SECONDS, Backoff


class Highest(random.Random):
    """Draws the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        """Returns the bound."""
        return b


def test_bounds_double_and_stay_short_in_the_first_minute() -> None:
    """The wait stays below two seconds during the first minute of an outage."""
    now = [100.0]
    backoff = Backoff(Highest(), lambda: now[0])
    waits = []
    while now[0] < 160.0:
        waits.append(backoff.failed())
        now[0] += waits[-1]
    assert waits[:4] == [BASE_SECONDS, 2 * BASE_SECONDS, 4 * BASE_SECONDS, 8 * BASE_SECONDS]
    assert max(waits) == 2.0


def test_bounds_grow_with_the_outage_up_to_a_limit() -> None:
    """The wait grows with the outage up to a limit; after a healthy period the first wait is short again."""
    now = [100.0]
    backoff = Backoff(Highest(), lambda: now[0])
    for _ in range(10):
        backoff.failed()
    now[0] += 300.0
    assert backoff.failed() == 10.0
    now[0] += 86400.0
    assert backoff.failed() == LARGEST_CAP_SECONDS
    backoff.healthy()
    now[0] += 1000.0
    assert backoff.attempts == 0
    assert backoff.failed() == BASE_SECONDS


@given(st.floats(0.01, 3600.0), st.integers(0, 30), st.integers())
def test_what_the_learner_asks_for_is_the_minimum(asked: float, failures: int, seed: int) -> None:
    """The actor waits at least as long as RetryInfo says, and actors with equal RetryInfo retry at different times."""
    backoff = Backoff(random.Random(seed), lambda: 100.0)
    for _ in range(failures):
        backoff.failed()
    wait = backoff.failed(asked)
    assert asked <= wait <= max(asked + SPREAD_SECONDS, LARGEST_CAP_SECONDS)


def test_waits_are_spread_over_the_whole_range() -> None:
    """Actors that failed at the same time retry at different times (full jitter)."""
    waits = [Backoff(random.Random(seed), lambda: 100.0).failed() for seed in range(200)]
    assert min(waits) < 0.1 * BASE_SECONDS
    assert max(waits) > 0.9 * BASE_SECONDS
