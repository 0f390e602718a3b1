"""What users read when a player fails names what happened, the usual causes and the log, in one line."""

from __future__ import annotations

from pathlib import Path

from actor_client.unity.players import causes

LOG = Path("/logs/Player-1.log")


def test_a_player_that_never_called() -> None:
    """The port, a build without ML-Agents, graphics, and time to load."""
    text = causes.never_connected(60.0, 5006, LOG)
    for words in (
        "port 5006 within 60 s",
        "without ML-Agents",
        "--mlagents-port",
        "graphics",
        "--timeout-wait",
        str(LOG),
    ):
        assert words in text
    assert "\n" not in text


def test_a_player_that_fell_silent() -> None:
    """The two settings that users forget, by their names in the inspector."""
    text = causes.fell_silent(60.0, LOG)
    for words in ("for 60 s", "DecisionRequester", "Behavior Type", "Default", "graphics", "--timeout-wait", str(LOG)):
        assert words in text
    assert "\n" not in text


def test_a_player_that_ended() -> None:
    """Whether it had called, and its last words."""
    how = "ended with exit code 3"
    assert causes.ended(how, "", None, has_called=True, said_so=False) == how
    assert causes.ended(how, "no libfoo.so", LOG, has_called=False, said_so=False) == (
        f"never connected: it {how}; its last output: no libfoo.so. See {LOG}"
    )
    assert causes.ended(how, "", None, has_called=True, said_so=True).startswith("quit by itself: ")
