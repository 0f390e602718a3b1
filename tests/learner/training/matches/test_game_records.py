"""Tests which games are shown and written, and that a record from outside does no harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole
from structlog.testing import capture_logs

from learner.link.matches import Match, Seat
from learner.shared.observe.behavior_state import GameView
from learner.shared.observe.meters import RunMeters
from learner.training.matches.game_records import KEPT_FILES, GameRecords

NAME = "Board"
MATCH = Match(9, "session", tuple(Seat(NAME, team, AssignmentRole.OPPONENT) for team in (3, 5)))
PLAYERS = ("step 500", "random\x1b[2J")


def record(game: str = "hex", *moves: str, first_team: int = 3) -> GameRecord:
    """Returns a game that its first mover won."""
    return GameRecord(9, game, first_team, GameResult.WON, moves or ("a1", "b2"))


def shown(meters: RunMeters) -> GameView | None:
    """Returns the game on the status page."""
    return meters.behavior(NAME).counts().game


def test_a_game_is_shown_and_written(tmp_path: Path) -> None:
    """The team that moved first names the first player; names have no control characters; each file is told of."""
    meters, told = RunMeters(), list[Path]()
    records = GameRecords(tmp_path, meters, lambda: 1_700_000_000.0, lambda _, path: told.append(path))
    records.add(NAME, MATCH, record(first_team=5), PLAYERS)
    assert shown(meters) == GameView("hex", "random\\x1b[2J", "step 500", "1-0", "a1\nb2")
    records.add(NAME, MATCH, record("shogi", "7g7f"), PLAYERS)
    records.add(NAME, MATCH, record("chess", "e4"), PLAYERS)
    records.add(NAME, MATCH, None, PLAYERS)
    folder = tmp_path / NAME / "games"
    assert sorted(path.name for path in folder.iterdir()) == [
        "game-000001.txt", "game-000002.kifu", "game-000003.pgn",
    ]  # fmt: skip
    assert told == sorted(folder.iterdir())
    assert "# first: random\\x1b[2J\n# second: step 500\n" in (folder / "game-000001.txt").read_text()
    assert '[Date "2023.11.14"]' in (folder / "game-000003.pgn").read_text()


def test_files_are_bounded_and_numbers_continue(tmp_path: Path) -> None:
    """The oldest files are deleted, also those of an earlier start; other files stay."""
    folder = tmp_path / NAME / "games"
    folder.mkdir(parents=True)
    (folder / "game-000041.pgn").write_text("old")
    (folder / "mine.txt").write_text("mine")
    records = GameRecords(tmp_path, RunMeters())
    for _ in range(KEPT_FILES):
        records.add(NAME, MATCH, record(), PLAYERS)
    names = sorted(path.name for path in folder.iterdir())
    assert (len(names), names[0], names[-2:]) == (KEPT_FILES + 1, "game-000042.txt", ["game-000141.txt", "mine.txt"])


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (record("shogi", "5e5d"), "moves no piece"),
        (record("chess", "1-0"), "is not a move of chess"),
        (record(first_team=4), "team 4, which moved first, has no seat"),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, sent: GameRecord, reason: str) -> None:
    """It is neither shown nor written; a warning says why."""
    meters = RunMeters()
    with capture_logs() as logs:
        GameRecords(tmp_path, meters).add(NAME, MATCH, sent, PLAYERS)
    assert [entry["event"] for entry in logs] == ["game_record_refused"]
    assert reason in logs[0]["reason"]
    assert (shown(meters), list(tmp_path.iterdir())) == (None, [])


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    """The game is shown all the same, and the next one is tried again."""
    (tmp_path / NAME).write_text("a file in place of the folder")
    meters = RunMeters()
    records = GameRecords(tmp_path, meters)
    with capture_logs() as logs:
        records.add(NAME, MATCH, record(), PLAYERS)
    assert [entry["event"] for entry in logs] == ["game_record_not_written"]
    assert shown(meters) is not None
    (tmp_path / NAME).unlink()
    records.add(NAME, MATCH, record(), PLAYERS)
    assert (tmp_path / NAME / "games" / "game-000001.txt").exists()


def test_without_a_folder_games_are_only_shown() -> None:
    """An evaluation of a finished run writes nothing."""
    meters = RunMeters()
    GameRecords(None, meters).add(NAME, MATCH, record(), PLAYERS)
    assert shown(meters) is not None
