"""Tests when a gateway acts: with times of the test."""

from actor_client.clients.window import Window

SECONDS = 2.0


def test_nobody_asks() -> None:
    """Without a question there is nothing to wait for."""
    assert Window(SECONDS).wait_seconds(0.0) is None


def test_a_client_alone_never_waits() -> None:
    """It is answered at once, the first time and later."""
    window = Window(SECONDS)
    for now in (0.0, 0.5, 1.0):
        window.asked("a", now)
        assert window.wait_seconds(now) == 0.0
        window.acted()
        window.answered("a", now)


def test_clients_in_step_share_a_batch() -> None:
    """The first waits for the last of those that were answered just before, and no longer than the window."""
    window = Window(SECONDS)
    for client in "abc":
        window.asked(client, 0.0)
    window.acted()
    for client in "abc":
        window.answered(client, 1.0)
    window.asked("a", 1.5)
    assert window.wait_seconds(1.5) == 1.5, "the others are awaited until two seconds after their answer"
    window.asked("b", 1.75)
    assert window.wait_seconds(1.75) == 1.25
    window.asked("c", 2.0)
    assert window.wait_seconds(2.0) == 0.0


def test_a_slow_client_delays_nobody_twice() -> None:
    """After the window, one that has not asked is not awaited; it is again after its next answer."""
    window = Window(SECONDS)
    window.answered("slow", 0.0)
    window.answered("fast", 0.0)
    window.asked("fast", 0.5)
    assert window.wait_seconds(0.5) == 1.5
    assert window.wait_seconds(2.0) == 0.0
    window.acted()
    window.answered("fast", 2.0)
    window.asked("fast", 2.5)
    assert window.wait_seconds(2.5) == 0.0


def test_the_wait_counts_from_the_first_to_ask() -> None:
    """An answer in the meantime makes nobody wait longer than the window."""
    window = Window(SECONDS)
    window.answered("a", 0.0)
    window.asked("b", 1.0)
    window.answered("c", 2.5)
    assert window.wait_seconds(2.5) == 0.5


def test_one_that_left_is_not_awaited() -> None:
    """Who leaves delays nobody."""
    window = Window(SECONDS)
    window.answered("a", 0.0)
    window.asked("b", 0.5)
    window.gone("a")
    assert window.wait_seconds(0.5) == 0.0


def test_a_window_of_zero_waits_for_nobody() -> None:
    """Every question is answered at once."""
    window = Window(0.0)
    window.answered("a", 1.0)
    window.asked("b", 1.0)
    assert window.wait_seconds(1.0) == 0.0
