"""The throttle of repeated log lines."""

from __future__ import annotations

from learner.observe.rates import MAX_KEYS, Throttle


def test_one_event_of_a_kind_passes_in_each_interval() -> None:
    """Within the interval events of a kind are counted, and the next one that passes says how many there were."""
    now = [0.0]
    throttle = Throttle(10.0, clock=lambda: now[0])
    assert throttle.admit("a") == 0
    assert throttle.admit("a") is None
    assert throttle.admit("a") is None
    assert throttle.admit("b") == 0
    now[0] = 10.0
    assert throttle.admit("a") == 2
    assert throttle.admit("a") is None


def test_it_forgets_old_kinds() -> None:
    """However many kinds there are, memory is bounded."""
    throttle = Throttle(10.0, clock=lambda: 0.0)
    for kind in range(3 * MAX_KEYS):
        assert throttle.admit(kind) == 0
    assert len(throttle._kinds) == MAX_KEYS
