"""Tests the file from which a tournament continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.training.matches.journal import Journal, MatchResult, Terms
from learner.training.matches.players import Kind, Player
from learner.training.matches.rating import Results

TERMS = Terms("Board", 1, deterministic=False)
PLAYERS = tuple(Player(name, name * 4, Kind.MODEL) for name in "abc")


def match(number: int, first: str = "aaaa", second: str = "bbbb", wins: int = 2) -> MatchResult:
    """Returns a match of ten games."""
    return MatchResult(number, first, second, wins, 3, 7 - wins, 12.5, "rig")


def test_a_second_start_has_the_same_games(tmp_path: Path) -> None:
    """Matches are there again after a start, in both orders of seats; numbers and starts continue."""
    path = tmp_path / "new" / "games.jsonl"
    with Journal(path, TERMS) as first:
        assert (first.start, first.next_number) == (1, 1)
        first.add(match(1))
        first.add(match(2, "bbbb", "aaaa", wins=5))
        first.add(match(3, wins=1))
        before = first.results(PLAYERS)
    with Journal(path, TERMS) as second:
        assert (second.start, second.next_number) == (2, 4)
        assert second.matches == first.matches
        assert second.results(PLAYERS) == before == {(0, 1): Results(3, 6, 11), (1, 0): Results(5, 3, 2)}
    with Journal(path, TERMS) as third:
        assert third.start == 3


def test_a_half_written_line_is_dropped(tmp_path: Path) -> None:
    """What a killed process wrote of its last line is removed, so that the next line is whole."""
    path = tmp_path / "games.jsonl"
    with Journal(path, TERMS) as journal:
        journal.add(match(1))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "match", "num')
    with Journal(path, TERMS) as journal:
        assert [each.number for each in journal.matches] == [1]
        journal.add(match(2))
    with Journal(path, TERMS) as journal:
        assert [each.number for each in journal.matches] == [1, 2]


def test_games_of_players_that_do_not_play_stay_in_the_file(tmp_path: Path) -> None:
    """Only games between the present players count; others count again when their players return."""
    with Journal(tmp_path / "games.jsonl", TERMS) as journal:
        journal.add(match(1))
        journal.add(match(2, "aaaa", "cccc"))
        assert journal.results(PLAYERS[:2]) == {(0, 1): Results(2, 3, 5)}
        assert journal.results(PLAYERS[::2]) == {(0, 1): Results(2, 3, 5)}
        assert len(journal.results(PLAYERS)) == 2


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        (Terms("Other", 1, deterministic=False), "behavior 'Board', not 'Other'"),
        (Terms("Board", 2, deterministic=False), "random_moves 1, not 2"),
        (Terms("Board", 1, deterministic=True), "deterministic False, not True"),
    ],
)
def test_games_of_other_settings_do_not_mix(terms: Terms, name: str, tmp_path: Path) -> None:
    """A start with other settings is refused by the name of the setting."""
    Journal(tmp_path / "games.jsonl", TERMS).close()
    with pytest.raises(UserError, match=name) as caught:
        Journal(tmp_path / "games.jsonl", terms)
    assert caught.value.exit_code is ExitCode.USAGE


HEAD = '{"kind": "tournament", "format": 1, "behavior": "Board", "random_moves": 1, "deterministic": false}'
MATCH = '{"kind": "match", "number": 1, "first": "a", "second": "b", "wins": 1, "draws": 0, "losses": 0'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{}"], "line 1: 'kind' is missing"),
        (["[" * 10**5], "line 1"),
        (["\x00"], "line 1"),
        ([HEAD.replace('"format": 1', '"format": 2')], "format 2; this version reads 1"),
        ([MATCH + "}"], "of the kind 'match' is not expected here"),
        ([HEAD, HEAD], "line 2: a line of the kind 'tournament' is not expected"),
        ([HEAD, '{"kind": "\\u001b[2J"}'], "line 2: a line of the kind"),
        ([HEAD, MATCH + ', "mean_length": NaN, "actor": "x"}'], "mean_length is nan"),
        ([HEAD, MATCH + ', "mean_length": 1, "actor": 5}'], "actor is 5, but must be text"),
        ([HEAD, MATCH.replace('"wins": 1', '"wins": -1') + ', "mean_length": 1, "actor": "x"}'], "wins is -1"),
        ([HEAD, MATCH.replace('"wins": 1', '"wins": 1e3') + ', "mean_length": 1, "actor": "x"}'], "wins is 1000.0"),
        ([HEAD, '{"kind": "start", "number": true}'], "number is True"),
    ],
)
def test_a_damaged_file_is_one_line(lines: list[str], message: str, tmp_path: Path) -> None:
    """The message names the line and what is wrong with it; nothing of the file changes."""
    path = tmp_path / "games.jsonl"
    path.write_text("\n".join(lines) + "\n")
    before = path.read_bytes()
    with pytest.raises(UserError, match=message) as caught:
        Journal(path, TERMS)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
    assert "\n" not in caught.value.message
    assert path.read_bytes() == before


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    """What is no file is refused by its path."""
    (tmp_path / "games.jsonl").mkdir()
    with pytest.raises(UserError, match=r"games\.jsonl cannot be used"):
        Journal(tmp_path / "games.jsonl", TERMS)
