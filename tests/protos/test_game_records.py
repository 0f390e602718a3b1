"""Tests game records as text: they name what moves without knowing the rules, and refuse what is no notation."""

# ruff: noqa: RUF001 - letters of KIF

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollcast.game_records import GameText, suffix_of

NAMES = ("step 500", 'a "b" \\')


def text(game: str, *moves: str, score: str = "1-0") -> str:
    """Returns a record."""
    return GameText(game, moves, NAMES, "2026.01.31", score).render()


def test_shogi_is_kif_that_ends_with_the_result() -> None:
    """Without a word for the ending, only the result follows the moves."""
    lines = text("shogi", "7g7f", "8c8d", "8h3c+").splitlines()
    assert lines[3:5] == ["先手：step 500", '後手：a "b" \\']
    assert lines[6:] == ["   1 ７六歩(77)", "   2 ８四歩(83)", "   3 ３三角成(88)", "まで3手で先手の勝ち"]
    assert text("shogi", score="0-1").endswith("まで0手で後手の勝ち\n")
    assert text("shogi", score="1/2-1/2").endswith("まで0手で引き分け\n")
    assert text("shogi", score="*").endswith("消費時間--\n")


def test_chess_is_pgn_with_quoted_names() -> None:
    """A name cannot end its tag."""
    lines = text("chess", "e4", "e5", "O-O", "exd8=Q+").splitlines()
    assert '[Black "a \\"b\\" \\\\"]' in lines
    assert lines[-1] == "1. e4 e5 2. O-O exd8=Q+ 1-0"


def test_other_games_are_lists_of_moves() -> None:
    """One move a line, whatever it is."""
    assert text("go(board_size=9)", "B c4", "W PASS").splitlines() == [
        "# game: go(board_size=9)", "# first: step 500", '# second: a "b" \\', "# result: 1-0", "B c4", "W PASS",
    ]  # fmt: skip
    assert [suffix_of(name) for name in ("shogi", "chess(chess960=true)", "hex")] == [".kifu", ".pgn", ".txt"]


@pytest.mark.parametrize(
    ("game", "moves"),
    [
        ("shogi", ["7g7f", "7g7f"]),
        ("shogi", ["5e5d"]),
        ("shogi", ["5i5h+"]),
        ("shogi", ["K*5e"]),
        ("shogi", ["7g7f "]),
        ("shogi", ["0a1a"]),
        ("chess", ["{e4}"]),
        ("chess", ["1-0"]),
        ("chess", ["e4 e5"]),
    ],
)
def test_what_is_no_notation_is_refused(game: str, moves: list[str]) -> None:
    """A move from an empty square, an impossible promotion, and text of the format's own are errors."""
    with pytest.raises(ValueError, match=r"is not a move|moves no piece"):
        text(game, *moves)


@given(st.lists(st.text(max_size=8), max_size=6), st.sampled_from(["shogi", "chess", "hex"]))
def test_any_text_gives_a_record_or_an_error(moves: list[str], game: str) -> None:
    """No other error comes of moves from outside."""
    with contextlib.suppress(ValueError):
        assert text(game, *moves).endswith("\n")
