"""Restarts are limited over a life and within a period; -1 lifts either limit."""

from __future__ import annotations

from actor_client.unity.players.quota import NO_LIMIT, RestartQuota


class Clock:
    """Time that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return self.now


def test_a_lifetime_has_so_many_restarts() -> None:
    """The limit itself is allowed, the next is refused with the key."""
    quota = RestartQuota(2, NO_LIMIT, 60.0, Clock())
    for _ in range(2):
        assert quota.refusal() is None
        quota.count()
    refusal = quota.refusal()
    assert refusal is not None
    assert "max_lifetime_restarts is 2" in refusal


def test_a_period_has_so_many_restarts() -> None:
    """Once the oldest is older than the period there is room again."""
    clock = Clock()
    quota = RestartQuota(NO_LIMIT, 1, 60.0, clock)
    quota.count()
    clock.now = 60.0
    refusal = quota.refusal()
    assert refusal is not None
    assert "1 times within 60 s" in refusal
    assert "restarts_rate_limit_n is 1" in refusal
    clock.now = 60.1
    assert quota.refusal() is None
    assert quota.restarts == 1


def test_without_limits_nothing_is_refused_nor_kept() -> None:
    """A player that fails for ever takes no memory."""
    quota = RestartQuota(NO_LIMIT, NO_LIMIT, 60.0, Clock())
    for _ in range(1000):
        assert quota.refusal() is None
        quota.count()
    assert not quota._recent


def test_zero_allows_none() -> None:
    """Either limit at 0 makes the first failure the last."""
    assert RestartQuota(0, NO_LIMIT, 60.0).refusal() is not None
    assert RestartQuota(NO_LIMIT, 0, 60.0).refusal() is not None
