"""Shogi: planes and moves from the mover's side, USI and SFEN.

Squares are numbered 0 to 80 from 9i (Black's left corner) along Black's ranks; White sees square `80 - s` as `s`. A
move is a *kind* and a target square, both as the mover sees them: `81 * kind + target`. Kinds 0 to 9 are the directions
of `_STEPS`, 10 to 19 the same with promotion, 20 to 26 drops of the pieces of a hand. Among legal moves a direction and
a target name one piece, because the nearer of two pieces on a line blocks the other.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ObservationSpec

from actor_client.boards.positions import OBSERVATION, BadNotation, Game, Numbers, Position
from actor_client.boards.shogi_moves import FILES, PROMOTED, SQUARES, WHITE, is_in_check, legal_moves

DEFAULT_MAX_PLIES: Final = 512
HAND: Final = "PLNSGBR"
"""Pieces of a hand in OpenSpiel's order."""
_PIECES: Final = f"{HAND}K"
_KINGS_AND_HANDS: Final = {"P": 18, "L": 4, "N": 4, "S": 4, "G": 4, "B": 2, "R": 2, "K": 2}
_FIRST_DROP: Final = SQUARES * SQUARES * 2

_STEPS: Final = ((0, 1), (-1, 1), (1, 1), (-1, 0), (1, 0), (0, -1), (-1, -1), (1, -1), (-1, 2), (1, 2))
"""Directions as (to the right, forward): the eight of a queen, and the jumps of a knight."""
KINDS: Final = 2 * len(_STEPS) + len(HAND)

# Codes of squares: 0 is empty; a piece's place in _PIECES plus 1, plus 8 if promoted, plus 16 for White.
_CODES: Final = [code for code in range(1, 16) if code != 13]  # a gold general has no other side
_PLANES_OF_PIECES: Final = 2 * len(_CODES)
_PLANES_OF_HANDS: Final = 2 * len(HAND)
_ONE: Final = 36
"""The byte of a 1 in a plane: a multiple of the number of each piece in a game, see `_HAND_UNITS`."""
_HAND_UNITS: Final = np.array([_ONE // _KINGS_AND_HANDS[piece] for piece in HAND] * 2, np.uint8)
"""The byte of one piece in hand, so that a plane of 1 is all of them: counts up to 18 would outweigh the board."""
_REPEATED: Final = (1, 2)
"""Earlier occurrences of the position from which a plane is set."""
_PLAYED: Final = (0.5, 0.75, 0.875)
"""Parts of `max_plies` from which a plane is set."""
PLANES: Final = _PLANES_OF_PIECES + _PLANES_OF_HANDS + len(_REPEATED) + len(_PLAYED)

_SFEN: Final = re.compile(r"([1-9KRBGSNLPkrbgsnlp+/]{17,90}) ([bw]) (-|[1-9RBGSNLPrbgsnlp0]{1,40})(?: ([0-9]{1,5}))?")


def _numbers_of_moves() -> NDArray[np.int64]:
    """Returns the number of a move by the mover's seat and OpenSpiel's number, int64 [2, 13689]; -1 = no move.

    OpenSpiel numbers a move by `162 * origin + 2 * target + promotes`, and a drop by `13122 + 81 * piece + target`.
    """
    found = np.full((2, _FIRST_DROP + len(HAND) * SQUARES), -1, np.int64)
    for origin in range(SQUARES):
        for target in range(SQUARES):
            right, forward = target % FILES - origin % FILES, target // FILES - origin // FILES
            for seat, turned in enumerate(((right, forward), (-right, -forward))):
                kind = _kind(*turned)
                if kind is None:
                    continue
                goal = target if seat == 0 else SQUARES - 1 - target
                for promotes in (0, 1):
                    raw = 2 * SQUARES * origin + 2 * target + promotes
                    found[seat, raw] = SQUARES * (kind + promotes * len(_STEPS)) + goal
    drops = np.arange(len(HAND) * SQUARES)
    pieces, targets = drops // SQUARES, drops % SQUARES
    first = 2 * len(_STEPS)
    found[0, _FIRST_DROP:] = SQUARES * (first + pieces) + targets
    found[1, _FIRST_DROP:] = SQUARES * (first + pieces) + SQUARES - 1 - targets
    return found


def _kind(right: int, forward: int) -> int | None:
    """Returns the direction of a step, or None."""
    if (right, forward) in _STEPS:
        return _STEPS.index((right, forward))
    distance = max(abs(right), abs(forward))
    if distance and (right == 0 or forward == 0 or abs(right) == abs(forward)):
        return _STEPS.index((right // distance, forward // distance))
    return None


_NUMBERS: Final = _numbers_of_moves()


def _usi_of_moves() -> list[str]:
    """Returns the USI of each of OpenSpiel's numbers."""
    squares = [f"{FILES - square % FILES}{chr(ord('i') - square // FILES)}" for square in range(SQUARES)]
    moves = [origin + target + promotes for origin in squares for target in squares for promotes in ("", "+")]
    return [*moves, *(f"{piece}*{target}" for piece in HAND for target in squares)]


_USI: Final = _usi_of_moves()


def _turned_codes() -> NDArray[np.uint8]:
    """Returns the code of each square after the players are exchanged, uint8 [32]."""
    codes = np.arange(2 * WHITE)
    turned = (codes + WHITE) % (2 * WHITE)
    return np.where(codes % WHITE == 0, 0, turned).astype(np.uint8)


_TURNED: Final = _turned_codes()
_PLANE_CODES: Final = np.array([*_CODES, *(code + WHITE for code in _CODES)], np.uint8)


class ShogiPosition(Position):
    """A position of shogi, with moves in USI.

    Attributes:
        squares: Codes of the squares, 81 bytes.
        hands: Numbers of pieces in hand, 14 bytes, Black's first.
    """

    __slots__ = ("hands", "squares")

    def __init__(self, game: Game, state: Any) -> None:
        self.squares, self.hands = _read_sfen(str(state))
        super().__init__(game, state)

    @property
    def sfen(self) -> str:
        """The position in SFEN, with the number of the next move."""
        return str(self.state)

    def _apply(self, raw: int) -> None:
        """Plays OpenSpiel's move, and changes squares and hands with it."""
        squares, hands, mine = self.squares, self.hands, 7 * self.mover
        if raw < _FIRST_DROP:
            origin, rest = divmod(raw, 2 * SQUARES)
            target, promotes = divmod(rest, 2)
            taken = squares[target]
            if taken:
                hands[mine + (taken - 1) % PROMOTED] += 1
            squares[target] = squares[origin] + promotes * PROMOTED
            squares[origin] = 0
        else:
            piece, target = divmod(raw - _FIRST_DROP, SQUARES)
            hands[mine + piece] -= 1
            squares[target] = piece + 1 + self.mover * WHITE
        super()._apply(raw)

    def _end(self) -> None:
        """Plays on where OpenSpiel ends a game because kings have entered; see `actor_client.boards.shogi_moves`."""
        if self.state.is_repetition_end():
            super()._end()
            return
        mover = int(str(self.state).split(" ", 2)[1] == "w")
        raw = legal_moves(self.squares, self.hands, mover)
        if not raw:
            self.returns = (-1.0, 1.0) if mover == 0 else (1.0, -1.0)
        elif self.plies >= self.game.max_plies:
            self.returns = 0.0, 0.0
        else:
            self._go_on(mover, raw)

    def notation(self, number: int) -> str:
        """Returns a legal move in USI."""
        return _USI[self.raw(number)]

    def notations(self) -> dict[str, int]:
        """Returns the numbers of all legal moves by their USI."""
        return {_USI[raw]: number for raw, number in zip(self._raw.tolist(), self.legal.tolist(), strict=True)}

    def copy(self) -> "ShogiPosition":
        """Returns a copy that can be played on independently."""
        other = super().copy()
        assert isinstance(other, ShogiPosition)  # noqa: S101 - for the type checker
        other.squares, other.hands = bytearray(self.squares), bytearray(self.hands)
        return other

    def text(self) -> str:
        """Returns the board with White's pieces as small letters, both hands, and the SFEN."""
        rows = ["  9  8  7  6  5  4  3  2  1"]
        for rank in range(FILES):
            line = self.squares[SQUARES - FILES * (rank + 1) : SQUARES - FILES * rank]
            rows.append(" ".join(_letter(code).rjust(2) for code in line) + f"  {chr(ord('a') + rank)}")
        white, black = (
            " ".join(f"{name}{count}" for name, count in zip(HAND, hand, strict=True) if count) or "-"
            for hand in (self.hands[7:], self.hands[:7])
        )
        return "\n".join([f"White (small) in hand: {white}", *rows, f"Black in hand: {black}", f"sfen {self.sfen}"])


class ShogiGame(Game):
    """Shogi; draws by fourfold repetition and after `max_plies`, perpetual check loses, and a king that enters ends nothing.

    The observation is uint8 [47, 9, 9] with a scale of 36, Black's or White's back rank first: 14 planes of the mover's
    pieces, 14 of the other's, 7 planes with the share of each piece that is in the mover's hand, 7 for the other's, two
    planes for a position that has occurred before (once, twice), and three for the plies played (a half, 3/4, 7/8 of
    `max_plies`).

    Args:
        spiel: The game of OpenSpiel.
        max_plies: A game is a draw after so many plies; None is 512.
    """

    position_type = ShogiPosition

    def __init__(self, spiel: Any, max_plies: int | None = None) -> None:
        super().__init__("shogi", spiel, DEFAULT_MAX_PLIES if max_plies is None else max_plies)

    def _count_moves(self) -> int:
        return KINDS * SQUARES

    def _describe(self) -> ObservationSpec:
        return ObservationSpec(
            OBSERVATION,
            np.dtype(np.uint8),
            (PLANES, FILES, FILES),
            kind=ObservationKind.IMAGE,
            layout=ImageLayout.CHW,
            scale=_ONE,
        )

    def start(self, text: str | None = None) -> Position:
        """Returns a position to play from; see `Game.start`. The text is SFEN, with or without the number of the move.

        Raises:
            BadNotation: The text is no SFEN of a legal position.
        """
        if text is None:
            return super().start()
        checked = _checked_sfen(text)
        try:
            position = ShogiPosition(self, self._spiel.new_initial_state(checked))
        except (RuntimeError, IndexError, ValueError) as error:
            raise BadNotation(f"{text[:120]!r} is not a position of shogi") from error
        if not position.is_over and is_in_check(position.squares, 1 - position.mover):
            raise BadNotation("the king of the player who does not move is in check")
        return position

    def numbers(self, raw: Numbers, mover: int) -> Numbers:
        """Returns the numbers of moves; see `Game.numbers`."""
        numbers: Numbers = _NUMBERS[mover].take(raw)
        return numbers

    def observe(self, positions: Sequence[Position], seats: Sequence[int]) -> NDArray[Any]:
        """Returns what players see; see `Game.observe`."""
        count = len(positions)
        seen = np.zeros((count, PLANES, SQUARES), np.uint8)
        if not count:
            return seen.reshape(count, PLANES, FILES, FILES)
        boards = np.frombuffer(b"".join([each.squares for each in positions]), np.uint8).reshape(count, SQUARES)  # type: ignore[attr-defined]
        hands = np.frombuffer(b"".join([each.hands for each in positions]), np.uint8).reshape(count, 2 * len(HAND))  # type: ignore[attr-defined]
        is_white = np.array(seats, np.bool_)[:, np.newaxis]
        boards = np.where(is_white, _TURNED[boards[:, ::-1]], boards)
        hands = np.where(is_white, np.roll(hands, len(HAND), axis=1), hands) * _HAND_UNITS
        np.equal(boards[:, np.newaxis], _PLANE_CODES[:, np.newaxis], out=seen[:, :_PLANES_OF_PIECES].view(np.bool_))
        seen[:, _PLANES_OF_PIECES : _PLANES_OF_PIECES + _PLANES_OF_HANDS] = hands[:, :, np.newaxis]
        rest = seen[:, _PLANES_OF_PIECES + _PLANES_OF_HANDS :]
        repeated = [each.state.num_repetitions(each.state) - 1 for each in positions]
        played = [each.plies / self.max_plies for each in positions]
        for plane, least in enumerate(_REPEATED):
            rest[:, plane] = np.greater_equal(repeated, least)[:, np.newaxis]
        for plane, least_part in enumerate(_PLAYED, start=len(_REPEATED)):
            rest[:, plane] = np.greater_equal(played, least_part)[:, np.newaxis]
        seen[:, :_PLANES_OF_PIECES] *= _ONE
        rest *= _ONE
        return seen.reshape(count, PLANES, FILES, FILES)


def _read_sfen(sfen: str) -> tuple[bytearray, bytearray]:
    """Returns squares and hands of an SFEN that is known to be right; see `ShogiPosition`."""
    board, _, in_hand, *_ = sfen.split(" ")
    squares, hands = bytearray(SQUARES), bytearray(2 * len(HAND))
    at, promoted = 0, 0
    for letter in board.replace("/", ""):
        if letter == "+":
            promoted = PROMOTED
        elif letter.isdigit():
            at += int(letter)
        else:
            rank, file = divmod(at, FILES)  # from White's back rank, as text is written
            code = _PIECES.index(letter.upper()) + 1 + promoted
            squares[SQUARES - FILES * (rank + 1) + file] = code if letter.isupper() else code + WHITE
            at, promoted = at + 1, 0
    for count, letter in re.findall(r"([0-9]*)([A-Za-z])", in_hand):
        hands[HAND.index(letter.upper()) + (0 if letter.isupper() else len(HAND))] = int(count or 1)
    return squares, hands


def _checked_sfen(text: str) -> str:
    """Returns an SFEN whose pieces are those of a game, with the number of the move.

    OpenSpiel ends the process or reads something else if a text is far from an SFEN.

    Raises:
        BadNotation: See the class.
    """
    found = _SFEN.fullmatch(text)
    if found is None:
        raise BadNotation(f"{text[:120]!r} is not an SFEN")
    board, mover, in_hand, number = found.groups()
    ranks = board.split("/")
    squares = [re.fullmatch(r"(?:[1-9]|\+?[RBSNLPrbsnlp]|[GKgk])+", rank) for rank in ranks]
    widths = [sum(int(each) if each.isdigit() else each != "+" for each in rank) for rank in ranks]
    if len(ranks) != FILES or None in squares or set(widths) != {FILES}:
        raise BadNotation(f"the board {board[:100]!r} does not have nine ranks of nine squares")
    if re.fullmatch(r"-|(?:(?:[2-9]|1[0-8])?[RBGSNLPrbgsnlp])+", in_hand) is None:
        raise BadNotation(f"{in_hand!r} are not pieces in hand")
    count = dict.fromkeys(_KINGS_AND_HANDS, 0)
    for letter in re.findall(r"[A-Za-z]", board):
        count[letter.upper()] += 1
    for many, letter in re.findall(r"([0-9]*)([A-Za-z])", in_hand):
        count[letter.upper()] += int(many or 1)
    if board.count("K") != 1 or board.count("k") != 1:
        raise BadNotation("a position has one king of each player")
    for letter, most in _KINGS_AND_HANDS.items():
        if count[letter] > most:
            raise BadNotation(f"the position has {count[letter]} of the piece {letter}; a game has {most}")
    return f"{board} {mover} {in_hand} {max(1, int(number or 1))}"


def _letter(code: int) -> str:
    """Returns a piece as in SFEN, or a dot."""
    if not code:
        return "."
    piece = code % WHITE - 1
    letter = _PIECES[piece % PROMOTED]
    return ("+" if piece >= PROMOTED else "") + (letter if code < WHITE else letter.lower())
