"""Legal moves of shogi in plain Python, for positions in which OpenSpiel ends the game without the rules.

OpenSpiel 2.0.2 ends a game when both kings have entered the last three ranks, and when one has and its side has 28
points. The rules of shogi do neither without an agreement or a declaration, and a program for shogi plays on. Squares
and codes are those of `actor_client.boards.shogi`.
"""

from typing import Final

SQUARES: Final = 81
FILES: Final = 9
WHITE: Final = 16
PROMOTED: Final = 8
_PAWN, _LANCE, _KNIGHT, _GOLD, _KING = 1, 2, 3, 5, 8
_HAND_KINDS: Final = 7

_Step = tuple[int, int]
"""A step as (to the right, forward)."""
_STRAIGHT: Final[tuple[_Step, ...]] = ((0, 1), (-1, 0), (1, 0), (0, -1))
_DIAGONAL: Final[tuple[_Step, ...]] = ((-1, 1), (1, 1), (-1, -1), (1, -1))
_LIKE_GOLD: Final[tuple[_Step, ...]] = ((0, 1), (-1, 1), (1, 1), (-1, 0), (1, 0), (0, -1))
_STEPS: Final[dict[int, tuple[_Step, ...]]] = {
    _PAWN: ((0, 1),),
    _KNIGHT: ((-1, 2), (1, 2)),
    4: ((0, 1), *_DIAGONAL),
    _GOLD: _LIKE_GOLD,
    _KING: _STRAIGHT + _DIAGONAL,
    9: _LIKE_GOLD,
    10: _LIKE_GOLD,
    11: _LIKE_GOLD,
    12: _LIKE_GOLD,
    14: _STRAIGHT,
    15: _DIAGONAL,
}
"""Single steps of each piece of Black."""
_SLIDES: Final[dict[int, tuple[_Step, ...]]] = {
    _LANCE: ((0, 1),),
    6: _DIAGONAL,
    7: _STRAIGHT,
    14: _DIAGONAL,
    15: _STRAIGHT,
}
"""Directions in which each piece of Black moves any distance."""

Ray = tuple[int, ...]


def _rays() -> list[list[tuple[Ray, ...]]]:
    """Returns the lines of squares that a piece reaches, by its code and square; the nearest square is first."""
    found: list[list[tuple[Ray, ...]]] = [[() for _ in range(SQUARES)] for _ in range(2 * WHITE)]
    for code in range(2 * WHITE):
        kind, sign = code % WHITE, 1 if code < WHITE else -1
        lines = [(step, 1) for step in _STEPS.get(kind, ())]
        lines += [(step, FILES) for step in _SLIDES.get(kind, ())]
        for square in range(SQUARES):
            rays = (_line(square, sign * right, sign * forward, most) for (right, forward), most in lines)
            found[code][square] = tuple(ray for ray in rays if ray)
    return found


def _line(square: int, right: int, forward: int, most: int) -> Ray:
    """Returns the squares of a line that are on the board."""
    rank, file = divmod(square, FILES)
    squares = []
    for distance in range(1, most + 1):
        to_rank, to_file = rank + distance * forward, file + distance * right
        if not (0 <= to_rank < FILES and 0 <= to_file < FILES):
            break
        squares.append(FILES * to_rank + to_file)
    return tuple(squares)


_RAYS: Final = _rays()
_REACHED: Final = [[frozenset(square for ray in rays for square in ray) for rays in of] for of in _RAYS]


def is_attacked(squares: bytearray, target: int, by: int) -> bool:
    """Returns whether any piece of a seat attacks a square."""
    for square, code in enumerate(squares):
        if code and code // WHITE == by and target in _REACHED[code][square]:
            for ray in _RAYS[code][square]:
                for reached in ray:
                    if reached == target:
                        return True
                    if squares[reached]:
                        break
    return False


def is_in_check(squares: bytearray, seat: int) -> bool:
    """Returns whether the king of a seat is attacked."""
    return is_attacked(squares, squares.index(_KING + WHITE * seat), 1 - seat)


def legal_moves(squares: bytearray, hands: bytearray, mover: int) -> list[int]:
    """Returns OpenSpiel's numbers of all legal moves, ascending.

    Args:
        squares: Codes of the squares, 81 bytes.
        hands: Numbers of pieces in hand, 14 bytes, Black's first.
        mover: The seat that moves.
    """
    return sorted([*_board_moves(squares, mover), *_drops(squares, hands, mover)])


def _board_moves(squares: bytearray, mover: int) -> list[int]:
    moves = []
    for origin, code in enumerate(squares):
        if not code or code // WHITE != mover:
            continue
        for ray in _RAYS[code][origin]:
            for target in ray:
                taken = squares[target]
                if taken and taken // WHITE == mover:
                    break
                if _is_safe(squares, origin, target, mover):
                    moves += [2 * (SQUARES * origin + target) + way for way in _ways(code, origin, target, mover)]
                if taken:
                    break
    return moves


def _is_safe(squares: bytearray, origin: int, target: int, mover: int) -> bool:
    """Returns whether a move leaves the mover's king out of check."""
    after = bytearray(squares)
    after[target], after[origin] = after[origin], 0
    return not is_in_check(after, mover)


def _ways(code: int, origin: int, target: int, mover: int) -> list[int]:
    """Returns whether a piece may stay as it is (0), promote (1), or both."""
    kind = code % WHITE
    if kind > PROMOTED - 1 or kind == _GOLD:
        return [0]
    enters = max(_rank(origin, mover), _rank(target, mover)) >= 6
    ways = [0] if _rank(target, mover) <= _last_rank(kind) else []
    return [*ways, 1] if enters else ways


def _rank(square: int, mover: int) -> int:
    """Returns the rank as the mover counts it, 0 for the own back rank."""
    rank = square // FILES
    return rank if mover == 0 else FILES - 1 - rank


def _last_rank(kind: int) -> int:
    """Returns the last rank on which an unpromoted piece can still move."""
    return {_PAWN: 7, _LANCE: 7, _KNIGHT: 6}.get(kind, 8)


def _drops(squares: bytearray, hands: bytearray, mover: int) -> list[int]:
    moves = []
    for piece in range(_HAND_KINDS):
        if not hands[_HAND_KINDS * mover + piece]:
            continue
        kind = piece + 1
        for target in range(SQUARES):
            if squares[target] or _rank(target, mover) > _last_rank(kind):
                continue
            if kind == _PAWN and kind + WHITE * mover in squares[target % FILES :: FILES]:
                continue
            after = bytearray(squares)
            after[target] = kind + WHITE * mover
            if is_in_check(after, mover) or (kind == _PAWN and _mates(after, hands, mover)):
                continue
            moves.append(2 * SQUARES * SQUARES + SQUARES * piece + target)
    return moves


def _mates(squares: bytearray, hands: bytearray, mover: int) -> bool:
    """Returns whether the other player is in check and has no legal move, which a dropped pawn must not cause."""
    other = 1 - mover
    return is_in_check(squares, other) and not _board_moves(squares, other) and not _drops(squares, hands, other)
