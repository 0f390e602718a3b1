"""Tests games of OpenSpiel as the rollout sees them: moves, masks, views, results and notation."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.specs import BehaviorSpec

from actor_client.boards.catalog import make_game
from actor_client.boards.positions import BadNotation, ChessPosition, Game, Position
from actor_client.exits import ActorError, ExitCode

NAMES = [
    "shogi",
    "chess",
    "go(board_size=5)",
    "connect_four",
    "othello",
    "hex(board_size=4)",
    "tic_tac_toe",
    "mnk(m=4,n=4,k=3)",
    "breakthrough",
    "nim",
    "oware",
    "dots_and_boxes",
]
TURNED = {"connect_four": 0, "tic_tac_toe": 2, "mnk(m=4,n=4,k=3)": 2, "go(board_size=7)": 0}
"""The plane with the mover's stones."""
MOVES_IN_PLANES = ["shogi", "go(board_size=5)", "othello", "hex", "mnk", "amazons", "y", "havannah", "tic_tac_toe"]
"""Games that the page of board games names for a conv head."""
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", params=NAMES)
def game(request: pytest.FixtureRequest) -> Game:
    """Returns each game."""
    return make_game(request.param)


def play(game: Game, numbers: random.Random, plies: int) -> Position:
    """Returns a position after random moves, or at the end of the game."""
    position = game.start()
    while not position.is_over and position.plies < plies:
        position.play(int(numbers.choice(position.legal)))
    return position


@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_a_game_is_played_by_its_rules(game: Game, seed: int) -> None:
    """In each position masks, legal moves and notation agree; the results of both add up to 0 and a copy stands still."""
    numbers = random.Random(seed)
    spec = game.spec("Game")
    assert BehaviorSpec.from_message(spec.to_message()) == spec
    position = game.start()
    assert position.mover == 0
    while not position.is_over and position.plies < 60:
        legal = position.legal.tolist()
        assert len(set(legal)) == len(legal) > 0
        (mask,) = game.masks([position])
        assert np.flatnonzero(mask).tolist() == sorted(legal)
        (seen,) = game.observe([position], [position.mover])
        assert (seen.shape, seen.dtype) == (game.observation.shape, game.observation.dtype)
        assert np.isfinite(seen).all()
        names = position.notations()
        assert sorted(names.values()) == sorted(legal)
        for name, number in names.items():
            assert position.notation(number) == name
            assert position.read_move(name) == number
        copy, before = position.copy(), position.text()
        copy.play(int(numbers.choice(copy.legal)))
        assert position.text() == before
        assert position.legal.tolist() == legal
        position.play(int(numbers.choice(position.legal)))
    if position.returns is not None:
        assert sum(position.returns) == 0
        assert max(map(abs, position.returns)) <= 1
        assert not position.legal.size


@pytest.mark.parametrize(("name", "plane"), TURNED.items())
def test_the_mover_s_stones_are_in_one_plane(name: str, plane: int) -> None:
    """Both players see their own stones in the same plane, and the other's in another one."""
    game = make_game(name)
    position = play(game, random.Random(1), 4)
    played = {0: 2, 1: 2}
    for _ in range(2):
        mine, other = position.mover, 1 - position.mover
        (seen,) = game.observe([position], [mine])
        counts = seen[: 3 if seen.shape[0] == 3 else 2].sum((1, 2))
        assert counts[plane] == played[mine]
        assert played[other] in counts.tolist()
        stones = seen[plane]
        played[mine] += 1
        position.play(int(position.legal[0]))
        (after,) = game.observe([position], [mine])
        assert (after[plane] - stones).sum() == 1


@pytest.mark.parametrize("name", ["hex(board_size=4)", "breakthrough", "nim"])
def test_the_seat_is_told_where_boards_look_alike(name: str) -> None:
    """A last plane, or a last number, is the seat."""
    game = make_game(name)
    position = play(game, random.Random(2), 1)
    first, second = game.observe([position, position], [0, 1])
    assert (first[-1] == 0).all()
    assert (second[-1] == 1).all()
    assert (first[:-1] == second[:-1]).all()


@pytest.mark.parametrize("name", MOVES_IN_PLANES)
def test_moves_are_planes_of_squares(name: str) -> None:
    """A move changes the square of the observation that its number names, as a conv head of a tower assumes."""
    game = make_game(name)
    squares = game.observation.shape[1] * game.observation.shape[2]
    moves = game.spec("Game").action.mask_size
    assert moves >= squares
    position, numbers = game.start(), random.Random(5)
    while not position.is_over:
        mover, number = position.mover, int(numbers.choice(position.legal))
        (before,) = game.observe([position], [mover])
        position.play(number)
        (after,) = game.observe([position], [mover])
        if number < moves - moves % squares:  # the rest passes
            changed = (before != after).any(0).reshape(squares)
            assert changed[number % squares]


def test_a_set_number_of_plies_is_a_draw() -> None:
    """The last ply of the limit ends the game without a winner."""
    game = make_game("connect_four", 3)
    position = play(game, random.Random(3), 99)
    assert (position.plies, position.returns) == (3, (0.0, 0.0))


def test_chess_reads_both_notations() -> None:
    """Moves are SAN; coordinates name the same moves, promotions included."""
    position = make_game("chess").start()
    assert isinstance(position, ChessPosition)
    assert position.read_move("e2e4") == position.read_move("e4")
    assert set(position.coordinates().values()) == set(position.legal.tolist())
    position.play(position.read_move("e2e4"))
    assert position.read_move("g8f6") == position.read_move("Nf6")
    for text in ("e2e4", "Ke2", "a1a9", "", "e4\n", "0000"):
        with pytest.raises(BadNotation, match="not a legal move"):
            position.read_move(text)
    with pytest.raises(BadNotation, match="only from its first position"):
        make_game("chess").start("8/8/8/8/8/8/8/8 w - - 0 1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shoggi", "no game 'shoggi'; did you mean shogi"),
        ("kuhn_poker", "kuhn_poker has chance"),
        ("matrix_rps", "matrix_rps has simultaneous moves"),
        ("dark_chess", "dark_chess hides information"),
        ("connect_four(nonsense=1)", "Unknown parameter 'nonsense'"),
        ("go(board_size=", "Missing closing bracket"),
        ("go(board_size=99)", "supports board size up to 19"),
    ],
)
def test_other_games_are_refused(name: str, said: str) -> None:
    """Games that do not exist, or are not of two players who take turns and see everything, end with one line."""
    with pytest.raises(ActorError) as caught:
        make_game(name)
    assert caught.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["tic_tac_toe", "mnk", "gomoku", "connect_four"])
def test_boards_have_the_coordinates_of_moves(name: str) -> None:
    """The row and the column of a move are those of the stone that it sets."""
    position = make_game(name).start()
    before = position.text().splitlines()
    for text in list(position.notations())[:20]:
        after = position.copy()
        after.play(after.read_move(text))
        lines = after.text().splitlines()
        numbers = re.findall("[0-9]+", text)
        ((row, line),) = [(row, line) for row, line in enumerate(lines) if line != before[row] and len(line) > 2]
        (place,) = [place for place, cell in enumerate(line) if cell != before[row][place]]
        head = next(each for each in lines if len(each) > 2)
        assert head[: place + 1].split()[-1] == numbers[-1]
        assert len(head[: place + 1].split()) == int(numbers[-1]) + 1
        assert name == "connect_four" or line.split()[0] == numbers[0]
