"""Tests shogi: numbers of moves and planes from the mover's side, USI, SFEN, repetition, check and entered kings."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actor_client.boards.catalog import make_game
from actor_client.boards.positions import BadNotation
from actor_client.boards.shogi import ShogiPosition, _read_sfen
from actor_client.boards.shogi_moves import is_in_check, legal_moves

GAME = make_game("shogi", 10**6)
SEEDS = st.integers(0, 2**32 - 1)
START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
ENTERED = "+N3+P3+P/1K1G1LP2/6+R2/+RS1PP1gsp/PPPn1+B1PP/3N+bP3/1L6k/3+p1g3/1g+p+p2+n+lS b 3PLs 1"
"""Both kings are in the other's camp: OpenSpiel ends the game, the rules do not."""
DROPPED_MATE = "+S1p1G+Lb+NS/2BP2GP1/rP+N5l/P1l2gN2/4P1k1P/R2g3+p1/3p1K3/l2+p1SPp1/+s1+n1+pP3 w 3Pp 1"
"""White may not drop the pawn that mates on 4f."""


def played(seed: int, plies: int, sfen: str | None = None) -> ShogiPosition:
    """Returns a position after random moves, or at the end of the game."""
    numbers = random.Random(seed)
    position = GAME.start(sfen)
    assert isinstance(position, ShogiPosition)
    while not position.is_over and position.plies < plies:
        position.play(int(numbers.choice(position.legal)))
    return position


def turned(sfen: str) -> str:
    """Returns the position after the players are exchanged."""
    board, mover, hands, number = sfen.split()
    letters, taken = [], ""
    for letter in board:  # a sign belongs to the letter after it
        taken += letter
        if letter != "+":
            letters.append(taken)
            taken = ""
    return f"{''.join(reversed(letters)).swapcase()} {'w' if mover == 'b' else 'b'} {hands.swapcase()} {number}"


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, plies=st.integers(0, 300))
def test_both_players_see_and_number_alike(seed: int, plies: int) -> None:
    """With colors exchanged and the board turned, the mover sees the same planes and has the same numbers of moves."""
    position = played(seed, plies)
    if position.is_over:
        return
    other = GAME.start(turned(position.sfen))
    assert other.mover == 1 - position.mover
    assert sorted(other.legal.tolist()) == sorted(position.legal.tolist())
    ours, theirs = GAME.observe([position, other], [position.mover, other.mover])
    assert (ours[:42] == theirs[:42]).all()  # the rest tells of the past


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, plies=st.integers(0, 400))
def test_squares_hands_and_usi_follow_the_moves(seed: int, plies: int) -> None:
    """The adapter's board is that of OpenSpiel's SFEN after any moves, and its USI is OpenSpiel's text."""
    position = played(seed, plies)
    assert (position.squares, position.hands) == _read_sfen(position.sfen)
    for usi, number in position.notations().items():
        assert position.state.action_to_string(position.mover, position.raw(number)) == usi
    if not position.is_over:
        again = GAME.start(position.sfen)
        assert isinstance(again, ShogiPosition)
        assert again.sfen == position.sfen
        assert again.notations() == position.notations()


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, plies=st.integers(0, 400))
def test_both_generators_of_moves_agree(seed: int, plies: int) -> None:
    """Moves in plain Python are those of OpenSpiel in every position that OpenSpiel does not end."""
    position = played(seed, plies)
    if not position.state.is_terminal():
        assert legal_moves(position.squares, position.hands, position.mover) == position.state.legal_actions()
        assert is_in_check(position.squares, position.mover) == position.state.in_check()


def test_planes() -> None:
    """Own pieces, the other's, hands, repetitions and the plies played are where the documentation says."""
    position = GAME.start("lnsgkgsnl/1r7/pppppp1pp/6p2/9/2P6/PP1PPPP2/1+B5R1/LNSGKGSNL w 2Pb 4")
    (seen,) = GAME.observe([position], [1])
    assert seen.shape == (47, 9, 9)
    assert GAME.observation.scale == 36
    seen = seen / 36
    kinds = seen.sum((1, 2))
    assert kinds[:14].tolist() == [9, 2, 2, 2, 2, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert kinds[14:28].tolist() == [7, 2, 2, 2, 2, 0, 1, 1, 0, 0, 0, 0, 1, 0]
    assert (seen[28:42, 0, 0] * ([18, 4, 4, 4, 4, 2, 2] * 2)).tolist() == [0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0]
    assert seen[7, 0, 4] == 1  # the king stands on its own back rank
    assert not seen[42:].any()


def test_planes_of_repetitions_and_plies() -> None:
    """A position that comes again is told once and twice; so are a half, 3/4 and 7/8 of all plies."""
    game = make_game("shogi", 16)
    position = game.start()
    told = []
    for move in ["2h3h", "8b7b", "3h2h", "7b8b"] * 3:
        position.play(position.read_move(move))
        if not position.is_over:
            (seen,) = game.observe([position], [position.mover])
            told.append((seen[42:, 3, 3] / 36).tolist())
    assert told[2] == [0, 0, 0, 0, 0]
    assert told[3] == [1, 0, 0, 0, 0]
    assert told[7] == [1, 1, 1, 0, 0]
    assert len(told) == 11
    assert position.returns == (0.0, 0.0)  # the fourth time is a draw


@pytest.mark.parametrize("sfen", ["4k4/9/9/9/9/9/9/9/R3K4 b - 1", "4k3r/9/9/9/9/9/9/9/4K4 w - 1"])
def test_who_gives_perpetual_check_loses(sfen: str) -> None:
    """A position with checks by one player at each of its moves loses for that player at the fourth time."""
    first = GAME.start(sfen)
    is_black = first.mover == 0
    cycle = ["9i9a", "5a5b", "9a9b", "5b5a", "9b9a"] if is_black else ["1a1i", "5i5h", "1i1h", "5h5i", "1h1i"]
    position = first
    position.play(position.read_move(cycle[0]))
    plies = 0
    while not position.is_over:
        position.play(position.read_move(cycle[1 + plies % 4]))
        plies += 1
    assert plies == 12
    assert position.returns == ((-1.0, 1.0) if is_black else (1.0, -1.0))


def test_an_entered_king_ends_nothing() -> None:
    """The game goes on by the rules where OpenSpiel ends it."""
    position = GAME.start(ENTERED)
    assert isinstance(position, ShogiPosition)
    assert position.state.is_terminal()
    assert not position.is_over
    assert sorted(GAME.start(turned(ENTERED)).legal.tolist()) == sorted(position.legal.tolist())
    for move in ("8b8c", "1g1f", "6f7d", "1f1g"):
        position.play(position.read_move(move))
    assert not position.is_over
    assert (position.squares, position.hands) == _read_sfen(position.sfen)


def test_a_pawn_is_not_dropped_with_mate() -> None:
    """The drop is not legal, in either generator; other drops of the pawn are."""
    position = GAME.start(DROPPED_MATE)
    assert isinstance(position, ShogiPosition)
    assert "P*4f" not in position.notations()
    assert legal_moves(position.squares, position.hands, 1) == position.state.legal_actions()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "startpos",
        START.replace(" b ", " x "),
        START.replace("/9/9/9/", "/9/9/"),
        START.replace("9/9/9", "9/9/8"),
        START.replace("ppppppppp", "pppppppppp"),
        START.replace("1r5b1", "1r5k1"),
        START.replace("K", "G"),
        START.replace("LNSGKGSNL", "LNSG+KGSNL"),
        START.replace(" - ", " P "),
        START.replace(" - ", " 99P "),
        START.replace(" - ", " K "),
        START.replace(" 1", " 99999999999999999999"),
        "4k4/4R4/9/9/9/9/9/9/4K4 b - 1",
        "/" * 30 + " b - 1",
        "+" * 90 + " b - 1",
        "\x00" * 30,
        START + "\n",
    ],
)
def test_other_texts_are_no_positions(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Anything but the SFEN of a possible position is refused, with nothing on the terminal."""
    with pytest.raises(BadNotation):
        GAME.start(text)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=60, deadline=None)
@given(
    text=st.one_of(
        st.text(alphabet="lnsgkrbpLNSGKRBP+/123456789 bw-", max_size=100),
        st.from_regex(
            r"[1-9plnsgbrkPLNSGBRK+]{1,9}(/[1-9plnsgbrkPLNSGBRK+]{1,9}){8} [bw] (-|[2-9]?[PLNSGBRplnsgbr]{1,8}) 1"
        ),
    )
)
def test_no_text_does_harm(text: str) -> None:
    """Any text is a position in which moves can be listed, or is refused."""
    try:
        position = GAME.start(text)
    except BadNotation:
        return
    assert position.is_over or position.notations()
