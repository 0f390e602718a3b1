"""Tests the players of the gate of Connect Four."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools.gates.connect_four import COLUMNS, ROWS, Planes, drop, has_line, score, searching

FREE = np.ones(COLUMNS, np.bool_)


def position(*rows: str) -> Planes:
    """Returns a position whose lowest rows are given: o is a piece of the player to move, x one of the other."""
    planes = np.zeros((2, ROWS, COLUMNS), np.bool_)
    for height, row in enumerate(reversed(rows)):
        for column, piece in enumerate(row):
            if piece != ".":
                planes["ox".index(piece), ROWS - 1 - height, column] = True
    return planes


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("...oooo",), True),
        (("oooxo..",), False),
        (("o......",) * 4, True),
        (("...o...", "..o....", ".o.....", "o......"), True),
        (("o......", ".o.....", "..o....", "...o..."), True),
        (("o......", ".o.....", "..o....", "....o.."), False),
    ],
)
def test_lines_of_four(rows: tuple[str, ...], expected: bool) -> None:
    """Four in a row, a column or a diagonal are a line."""
    assert has_line(position(*rows)[0]) is expected


def test_a_piece_falls_on_what_is_taken() -> None:
    """A move takes the lowest free field of its column."""
    planes = position("x......", "o......")
    after = drop(planes[0], planes, 0)
    assert after.sum() == 2
    assert after[ROWS - 3, 0]


def test_searches_win_and_prevent() -> None:
    """One ply takes a win; two plies take it first, and otherwise the field on which the other would win."""
    random = np.random.default_rng(1)
    both = position("ooo....", "xxx....")
    assert searching(2, random)(both, FREE) == 3
    threatened = position("xxx....", "ooxo...")
    assert {searching(2, random)(threatened, FREE) for _ in range(20)} == {3}
    assert len({searching(1, random)(threatened, FREE) for _ in range(50)}) > 3


def test_searching_deeper_wins() -> None:
    """In the environment, two plies beat random moves, from both seats; equal players draw even."""
    random = np.random.default_rng(2)
    assert score(searching(2, random), searching(0, random), 20) > 0.8
    assert 0.2 < score(searching(0, random), searching(0, random), 40) < 0.8
