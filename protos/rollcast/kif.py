# ruff: noqa: RUF001 - letters of the format
"""Writes games of shogi as KIF, which most programs for shogi read."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

USI_PATTERN: Final = re.compile(r"(?:([PLNSGBR])\*|([1-9][a-i]))([1-9][a-i])(\+?)")
"""A move in USI: a piece in hand or a square, the target, and the promotion."""
_RANKS: Final = "一二三四五六七八九"
_FILES: Final = "０１２３４５６７８９"
_NAMES: Final = {
    "P": "歩", "L": "香", "N": "桂", "S": "銀", "G": "金", "B": "角", "R": "飛", "K": "玉",
    "+P": "と", "+L": "成香", "+N": "成桂", "+S": "成銀", "+B": "馬", "+R": "龍",
}  # fmt: skip
_BACK_RANK: Final = "LNSGKGSNL"
_OTHERS: Final = {"8b": "R", "2b": "B", "8h": "B", "2h": "R"}
_PROMOTES: Final = "成"
_DROPPED: Final = "打"
_ENDINGS: Final = {
    "1-0": "まで{}手で先手の勝ち",
    "0-1": "まで{}手で後手の勝ち",
    "1/2-1/2": "まで{}手で引き分け",
}


def render_kif(moves: Sequence[str], names: tuple[str, str], date: str, score: str, ending: str = "") -> str:
    """Returns the record of a game from the first position.

    Args:
        moves: Its moves in USI.
        names: The players, Black first.
        date: The day, as `2026.01.31`.
        score: The result as in PGN.
        ending: How the game ended, in the words of KIF (`詰み`); empty if unknown.

    Raises:
        ValueError: A text is no move in USI, or moves no piece.
    """
    lines = [
        "#KIF version=2.0 encoding=UTF-8",
        f"開始日時：{date.replace('.', '/')}",
        "手合割：平手",
        f"先手：{names[0]}",
        f"後手：{names[1]}",
        "手数----指手---------消費時間--",
        *(f"{number:4d} {move}" for number, move in enumerate(kif_moves(moves), start=1)),
    ]
    if ending:
        lines.append(f"{len(moves) + 1:4d} {ending}")
    if score in _ENDINGS:
        lines.append(_ENDINGS[score].format(len(moves)))
    return "\n".join([*lines, ""])


def kif_moves(moves: Sequence[str]) -> Iterator[str]:
    """Yields moves of USI as in KIF: target, piece, and the square that it comes from.

    The rules are not checked: a piece moves from any square to any other.

    Args:
        moves: The moves from the first position.

    Raises:
        ValueError: A text is no move in USI, or moves no piece.
    """
    board = _first_position()
    before = ""
    for usi in moves:
        found = USI_PATTERN.fullmatch(usi)
        if found is None:
            raise ValueError(f"{usi[:40]!r} is not a move of shogi in USI")
        dropped, origin, target, promotes = found.groups()
        piece = dropped or board.pop(origin, "")
        after = f"+{piece}" if promotes else piece
        if piece not in _NAMES or after not in _NAMES:
            raise ValueError(f"{usi!r} moves no piece of shogi")
        board[target] = after
        where = "同　" if target == before else f"{_FILES[int(target[0])]}{_RANKS[ord(target[1]) - ord('a')]}"
        start = _DROPPED if dropped else f"({origin[0]}{ord(origin[1]) - ord('a') + 1})"
        yield f"{where}{_NAMES[piece]}{_PROMOTES if promotes else ''}{start}"
        before = target


def _first_position() -> dict[str, str]:
    """Returns the pieces of both players by their squares in USI."""
    board = dict(_OTHERS)
    for file, piece in enumerate(_BACK_RANK, start=1):
        board |= {f"{file}a": piece, f"{file}c": "P", f"{file}g": "P", f"{file}i": piece}
    return board
