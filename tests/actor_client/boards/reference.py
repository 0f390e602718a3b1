"""Compares games of shogi with nshogi, ply by ply, on random and on repetitive games.

nshogi 0.3.3 differs from the rules in two ways, in which OpenSpiel follows them; both are counted:

- Its moves leave out that a pawn, a bishop, a rook, or a lance on the second rank stays unpromoted, which is legal and
  seldom good.
- Its moves contain pawns that are dropped with mate, which is illegal.

Its status of perpetual check comes at the third occurrence of a position; the rules and OpenSpiel say the fourth.

`python -m tests.actor_client.boards.reference 1000000` compares a million plies and prints what was seen.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import nshogi

from actor_client.boards.catalog import make_game
from actor_client.boards.shogi import ShogiPosition

START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
REPETITION = nshogi.RepetitionStatus.REPETITION
LOSS, WIN = nshogi.RepetitionStatus.LOSS_REPETITION, nshogi.RepetitionStatus.WIN_REPETITION
NOT_OVER = 10**6
"""Plies of a draw, beyond any game: nshogi knows no such draw."""


def fields(sfen: str) -> tuple[str, str, str]:
    """Returns board, mover and sorted hands of an SFEN."""
    board, mover, hands, *_ = sfen.split()
    pieces, count = [], ""
    for letter in hands:
        if letter.isdigit():
            count += letter
        else:
            pieces.append(f"{letter}{count}")
            count = ""
    return board, mover, " ".join(sorted(pieces))


def stays_unpromoted(position: ShogiPosition, move: str, names: Mapping[str, int]) -> bool:
    """Returns whether a move leaves a pawn, bishop, rook, or a lance on the second rank unpromoted, and need not."""
    if f"{move}+" not in names:
        return False
    file, rank = int(move[0]), ord(move[1]) - ord("a")
    piece = "PLNSGBRK"[position.squares[9 * (8 - rank) + 9 - file] % 16 - 1]
    is_second = move[3] == ("b" if position.mover == 0 else "h")
    return piece in "PBR" or (piece == "L" and is_second)


def reference_moves(position: ShogiPosition, state: Any, seen: Counter[str]) -> set[str]:
    """Returns the legal moves of nshogi, without pawns dropped with mate."""
    found = {nshogi.io.sfen.stringify(move) for move in state.legal_moves}
    names = position.notations()
    for move in [move for move in found if move.startswith("P*") and move not in names]:
        after = state.clone()
        after.do_move(nshogi.io.sfen.move_from_sfen(after, move))
        assert after.is_in_check, position.sfen
        assert not len(after.legal_moves), (position.sfen, move)
        seen["pawns dropped with mate"] += 1
        found.remove(move)
    return found


def check(position: ShogiPosition, state: Any, seen: Counter[str]) -> str:
    """Asserts that both see the same position; returns how the game ended, or nothing."""
    assert fields(position.sfen) == fields(state.position.to_sfen()), (position.sfen, state.position.to_sfen())
    repetition = state.get_repetition(True)
    returns = position.returns
    if returns is None:
        assert repetition != REPETITION, position.sfen
        names, legal = position.notations(), reference_moves(position, state, seen)
        unpromoted = {name for name in names if stays_unpromoted(position, name, names)}
        seen["unpromoted"] += len(unpromoted)
        assert set(names) == legal | unpromoted, (position.sfen, set(names) ^ (legal | unpromoted))
        assert len(set(names.values())) == len(names)
        return ""
    if returns[0] == 0:
        assert repetition == REPETITION, position.sfen
        return "fourfold repetition"
    mover = 0 if state.side_to_move == nshogi.Color.BLACK else 1
    if position.state.num_repetitions(position.state) == 4:
        assert repetition == (WIN if returns[mover] > 0 else LOSS), position.sfen
        return "perpetual check"
    assert not reference_moves(position, state, seen)
    assert returns[mover] == -1.0, position.sfen
    return "no legal move"


def choose(names: list[str], past: list[str], numbers: random.Random, shuffles: float) -> str:
    """Returns a random legal move; with a probability the mover's last move, taken back."""
    if len(past) >= 2 and numbers.random() < shuffles:
        last = past[-2]
        back = f"{last[2:4]}{last[:2]}"
        if back in names:
            return back
    return numbers.choice(names)


def compare(plies: int, seed: int, starts: tuple[str, ...] = (START,)) -> Counter[str]:
    """Plays games of at least so many plies and compares each ply.

    Args:
        plies: Least number of plies.
        seed: Seed of the games.
        starts: SFENs from which games begin.

    Returns:
        Numbers of plies, games, and games by their end.
    """
    numbers = random.Random(seed)
    game = make_game("shogi", NOT_OVER)
    seen: Counter[str] = Counter()
    while seen["plies"] < plies:
        start = numbers.choice(starts)
        shuffles = numbers.choice((0.0, 0.0, 0.0, 0.5, 0.97))
        position, state, past = game.start(start), nshogi.io.sfen.make_state_from_sfen(start), list[str]()
        assert isinstance(position, ShogiPosition)
        end = check(position, state, seen)
        while not end:
            names = sorted(position.notations())
            move = choose(names, past, numbers, shuffles)
            past.append(move)
            position.play(position.read_move(move))
            state.do_move(nshogi.io.sfen.move_from_sfen(state, move))
            seen["plies"] += 1
            end = check(position, state, seen)
        seen["games"] += 1
        seen[end] += 1
    return seen


if __name__ == "__main__":
    began = time.monotonic()
    print(dict(compare(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)), time.monotonic() - began)  # noqa: T201
