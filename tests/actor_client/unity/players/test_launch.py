"""Tests how a player is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from actor_client.unity.players.launch import Launch


def test_arguments_come_in_unitys_order() -> None:
    """Arguments have Unity's order: graphics, port, log, and the user's own last."""
    made = Launch(Path("/b/Build.x86_64"), ("--level", "two words"), no_graphics=True, log_dir=Path("/logs"))
    assert made.command(3, 5008) == [
        *("/b/Build.x86_64", "-nographics", "-batchmode", "--mlagents-port", "5008"),
        *("-logFile", "/logs/Player-3.log", "--level", "two words"),
    ]


def test_a_monitor_is_worker_0() -> None:
    """With --no-graphics-monitor the first player keeps its window."""
    made = Launch(Path("b"), no_graphics_monitor=True)
    assert made.command(0, 5005) == ["b", "--mlagents-port", "5005"]
    assert made.command(1, 5006) == ["b", "-nographics", "-batchmode", "--mlagents-port", "5006"]


@pytest.mark.parametrize("word", ["-logFile", "-logfile"])
def test_the_users_own_log_file_stays(word: str) -> None:
    """A log file in the build's arguments replaces Rollcast's."""
    made = Launch(Path("b"), (word, "mine.log"), log_dir=Path("/logs"))
    assert made.command(0, 5005) == ["b", "--mlagents-port", "5005", word, "mine.log"]
    assert made.log_path(0) is None
