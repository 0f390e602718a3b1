# ruff: noqa: RUF001 - letters of the format
"""Writes games of shogi as KIF, which most programs for shogi read."""

from collections.abc import Sequence
from typing import Final

from actor_client.boards.positions import Position
from actor_client.boards.shogi import HAND, ShogiPosition

_RANKS: Final = "一二三四五六七八九"
_FILES: Final = "０１２３４５６７８９"
_NAMES: Final = {
    "P": "歩", "L": "香", "N": "桂", "S": "銀", "G": "金", "B": "角", "R": "飛", "K": "玉",
    "+P": "と", "+L": "成香", "+N": "成桂", "+S": "成銀", "+B": "馬", "+R": "龍",
}  # fmt: skip
_PROMOTES: Final = "成"
_DROPPED: Final = "打"
_WON, _DRAWN = "まで{}手で{}の勝ち", "まで{}手で引き分け"
_SIDES: Final = ("先手", "後手")


def render_kif(moves: Sequence[str], position: Position, names: tuple[str, str], date: str) -> str:
    """Returns the record of a game from the first position.

    Args:
        moves: Its moves in USI.
        position: The position after them.
        names: The players, Black first.
        date: The day, as `2026.01.31`.
    """
    replayed = position.game.start()
    assert isinstance(replayed, ShogiPosition)  # noqa: S101 - for the type checker
    lines = [
        "#KIF version=2.0 encoding=UTF-8",
        f"開始日時：{date.replace('.', '/')}",
        "手合割：平手",
        f"先手：{names[0]}",
        f"後手：{names[1]}",
        "手数----指手---------消費時間--",
    ]
    before = ""
    for number, move in enumerate(moves, start=1):
        lines.append(f"{number:4d} {kif_move(replayed, move, before)}")
        before = move[2:4]
        replayed.play(replayed.read_move(move))
    plies, returns = len(moves), position.returns
    if returns is None:
        lines.append(f"{plies + 1:4d} 中断")
    elif position.is_resigned:
        lines += [f"{plies + 1:4d} 投了", _WON.format(plies, _SIDES[returns[0] < 0])]
    elif returns[0] == 0:
        is_repetition = position.state.is_terminal()
        lines += [f"{plies + 1:4d} {'千日手' if is_repetition else '持将棋'}", _DRAWN.format(plies)]
    else:
        ending = "反則勝ち" if position.state.is_repetition_end() else "詰み"
        lines += [f"{plies + 1:4d} {ending}", _WON.format(plies, _SIDES[returns[0] < 0])]
    return "\n".join([*lines, ""])


def kif_move(position: ShogiPosition, usi: str, before: str = "") -> str:
    """Returns a legal move as in KIF: target, piece, and the square it comes from.

    Args:
        position: The position in which it is played.
        usi: The move in USI.
        before: Target of the move before in USI; a move to the same square is written so.
    """
    target = usi[2:4]
    where = "同　" if target == before else f"{_FILES[int(target[0])]}{_RANKS[ord(target[1]) - ord('a')]}"
    if usi[1] == "*":
        return f"{where}{_NAMES[usi[0]]}{_DROPPED}"
    file, rank = int(usi[0]), ord(usi[1]) - ord("a")
    code = position.squares[9 * (8 - rank) + 9 - file] % 16 - 1
    name = _NAMES[("+" if code >= 8 else "") + f"{HAND}K"[code % 8]]
    return f"{where}{name}{_PROMOTES if usi.endswith('+') else ''}({file}{rank + 1})"
