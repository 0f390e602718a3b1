"""Games of OpenSpiel as the rollout and `play` see them: numbered moves, observations of the mover, notation.

A *seat* is 0 for the player who moves first, 1 for the other.
"""

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.envs.base import MaskArray

Numbers = NDArray[np.int64]

OBSERVATION: Final = "board"
_NONE: Final[Numbers] = np.zeros(0, np.int64)
_RELATIVE_PLIES: Final = 2
"""Plies after which the tensors of both seats are compared; before them a board may look the same to both."""

_GRIDS: Final = {"connect_four": False, "gomoku": True, "mnk": True, "tic_tac_toe": True}
"""Games whose boards OpenSpiel writes without coordinates although moves name them; whether they name rows."""


class BadNotation(Exception):  # noqa: N818 - says what the text is
    """A text is no legal move or no position of the game; the message is one line."""


class Position:
    """One position of one game, and the way to it.

    Args:
        game: The game.
        state: The state of OpenSpiel; taken over.

    Attributes:
        game: The game.
        state: The state of OpenSpiel.
        plies: Moves played since the start of this game.
        mover: The seat that moves; kept from the last move once the game is over.
        legal: Numbers of the legal moves, ascending in OpenSpiel's numbering, int64 [n]; empty once the game is over.
        returns: Result of each seat, in [-1, 1]; None before the end.
        is_resigned: A player has given up.
    """

    __slots__ = ("_raw", "game", "is_resigned", "legal", "mover", "plies", "returns", "state")

    def __init__(self, game: "Game", state: Any) -> None:
        self.game = game
        self.state = state
        self.plies = 0
        self.mover = 0
        self.is_resigned = False
        self._read()

    def _read(self) -> None:
        """Reads legal moves and result from the state."""
        state = self.state
        self.returns: tuple[float, float] | None = None
        self.legal = self._raw = _NONE
        if state.is_terminal():
            self._end()
        elif self.plies >= self.game.max_plies:
            self.returns = 0.0, 0.0
        else:
            self._go_on(self.game.seat(state.current_player()), state.legal_actions())

    def _go_on(self, mover: int, raw: list[int]) -> None:
        """Notes the player who moves, and OpenSpiel's numbers of the legal moves."""
        self.mover = mover
        self._raw = np.array(raw, np.int64)
        self.legal = self.game.numbers(self._raw, mover)

    def _end(self) -> None:
        """Notes the result of a state that OpenSpiel says is over."""
        game, found = self.game, self.state.returns()
        first, second = (found[game.player(seat)] / game.largest_return for seat in (0, 1))
        self.returns = first, second

    @property
    def is_over(self) -> bool:
        """True if the game has ended."""
        return self.returns is not None

    def raw(self, number: int) -> int:
        """Returns OpenSpiel's number of a legal move."""
        return int(self._raw[(self.legal == number).argmax()])

    def play(self, number: int) -> None:
        """Plays a legal move."""
        self._apply(self.raw(number))
        self.plies += 1
        self._read()

    def _apply(self, raw: int) -> None:
        self.state.apply_action(raw)

    def resign(self) -> None:
        """Ends the game: the player who moves gives up."""
        self.returns = (-1.0, 1.0) if self.mover == 0 else (1.0, -1.0)
        self.legal = self._raw = _NONE
        self.is_resigned = True

    def copy(self) -> "Position":
        """Returns a copy that can be played on independently."""
        other = object.__new__(type(self))
        other.game, other.state, other.plies, other.mover = self.game, self.state.clone(), self.plies, self.mover
        other.legal, other._raw, other.returns = self.legal, self._raw, self.returns
        other.is_resigned = self.is_resigned
        return other

    def notation(self, number: int) -> str:
        """Returns a legal move in the notation of the game."""
        return str(self.state.action_to_string(self.game.player(self.mover), self.raw(number)))

    def notations(self) -> dict[str, int]:
        """Returns the numbers of all legal moves by their notation."""
        name, player = self.state.action_to_string, self.game.player(self.mover)
        return {name(player, raw): number for raw, number in zip(self._raw.tolist(), self.legal.tolist(), strict=True)}

    def read_move(self, text: str) -> int:
        """Returns the number of a legal move from its notation.

        Raises:
            BadNotation: The text is no legal move.
        """
        names = self.readable()
        if text in names:
            return names[text]
        said = f"{text[:40]!r} is not a legal move here"
        if names and _form(text) not in {_form(name) for name in names}:
            said += f", and not written like one, such as {' or '.join(list(self.notations())[:2])}"
        raise BadNotation(said)

    def readable(self) -> dict[str, int]:
        """Returns the numbers of all legal moves by all texts that `read_move` takes."""
        return self.notations()

    def text(self) -> str:
        """Returns the position for a terminal, in several lines."""
        text, has_rows = str(self.state).rstrip("\n"), _GRIDS.get(self.game.name.partition("(")[0])
        return text if has_rows is None else _with_coordinates(text, has_rows=has_rows)


def _form(text: str) -> str:
    """Returns how a move is written: its kinds of letters, and its signs."""
    return re.sub("[0-9]+", "0", re.sub("[a-z]", "a", re.sub("[A-Z]", "A", text)))


def _with_coordinates(text: str, *, has_rows: bool) -> str:
    """Returns a board with the numbers of its columns, and of its rows if moves name them, both from 0."""
    lines = text.split("\n")
    top = lines.index(max(lines, key=len))
    head = "    " * has_rows + "".join(f"{column:3}" for column in range(len(lines[top])))
    rows = ("".join(f"  {cell}" for cell in line) for line in lines[top:])
    numbered = (f"{number:4}{row}" if has_rows else row for number, row in enumerate(rows))
    return "\n".join([*lines[:top], head, *numbered])


class Game:
    """A sequential game of two players with perfect information; this class passes OpenSpiel's own tensors on.

    Observations are turned to the mover: planes of the two players are exchanged where `turned` says so, and where a
    tensor looks the same to both seats otherwise, a last plane (of a vector: a last number) tells the seat.

    Args:
        name: Name of the game, with parameters as OpenSpiel writes them.
        spiel: The game of OpenSpiel.
        max_plies: A game is a draw after so many plies; None leaves the end to the rules.
        turned: The order of planes for seat 1; empty if they are not exchanged.

    Attributes:
        name: Name of the game.
        max_plies: See above.
        largest_return: The largest result of a seat in OpenSpiel's units.
        moves: Number of numbered moves.
        observation: The observation of a seat.
    """

    position_type: type[Position] = Position

    def __init__(self, name: str, spiel: Any, max_plies: int | None = None, turned: Sequence[int] = ()) -> None:
        self.name = name
        self.max_plies = int(spiel.max_game_length()) if max_plies is None else max_plies
        self.largest_return = float(spiel.max_utility())
        self._spiel = spiel
        self._first_player = int(spiel.new_initial_state().current_player())
        self._turned = list(turned)
        self._shape: tuple[int, ...] = tuple(spiel.observation_tensor_shape())
        self._tells_seat = False
        self._tells_seat = not self._turned and self._looks_the_same()
        self.moves = self._count_moves()
        self.observation = self._describe()

    def _count_moves(self) -> int:
        return int(self._spiel.num_distinct_actions())

    def _looks_the_same(self) -> bool:
        """Returns whether both seats see the same tensor."""
        state = self._spiel.new_initial_state()
        for _ in range(_RELATIVE_PLIES):
            if not state.is_terminal():
                state.apply_action(state.legal_actions()[0])
        return bool(state.observation_tensor(0) == state.observation_tensor(1))

    def _describe(self) -> ObservationSpec:
        shape = self._shape
        if self._tells_seat:
            shape = (shape[0] + 1, *shape[1:])
        is_board = len(shape) == 3
        return ObservationSpec(
            OBSERVATION,
            np.dtype(np.float32),
            shape,
            kind=ObservationKind.IMAGE if is_board else ObservationKind.VECTOR,
            layout=ImageLayout.CHW if is_board else ImageLayout.UNSPECIFIED,
        )

    def seat(self, player: int) -> int:
        """Returns the seat of a player of OpenSpiel, which numbers White of chess 1 although it moves first."""
        return player ^ self._first_player

    def player(self, seat: int) -> int:
        """Returns OpenSpiel's player of a seat."""
        return seat ^ self._first_player

    def spec(self, behavior: str) -> BehaviorSpec:
        """Returns the declaration of the players."""
        return BehaviorSpec(behavior, (self.observation,), ActionSpec(discrete_branches=(self.moves,)))

    def start(self, text: str | None = None) -> Position:
        """Returns a position to play from.

        Args:
            text: A position in the notation of the game; None for the first one.

        Raises:
            BadNotation: The text is no position, or the game has no notation for one.
        """
        if text is not None:
            raise BadNotation(f"{self.name} begins only from its first position")
        return self.position_type(self, self._spiel.new_initial_state())

    def numbers(self, raw: Numbers, mover: int) -> Numbers:
        """Returns the numbers of moves, int64 [n].

        Args:
            raw: OpenSpiel's numbers, int64 [n].
            mover: The seat that moves.
        """
        del mover
        return raw

    def observe(self, positions: Sequence[Position], seats: Sequence[int]) -> NDArray[Any]:
        """Returns what players see, [n, *shape].

        Args:
            positions: n positions.
            seats: The seat that looks, for each.
        """
        seen = np.zeros((len(positions), *self.observation.shape), np.float32)
        for row, position, seat in zip(seen, positions, seats, strict=True):
            values = np.array(position.state.observation_tensor(self.player(seat)), np.float32).reshape(self._shape)
            if self._turned and seat:
                values = values[self._turned]
            row[: len(values)] = values
            if self._tells_seat:
                row[-1] = seat
        return seen

    def masks(self, positions: Sequence[Position]) -> MaskArray:
        """Returns the legal moves of positions, uint8 [n, moves], 1 = legal."""
        masks = np.zeros((len(positions), self.moves), np.uint8)
        if positions:
            rows = np.repeat(np.arange(len(positions)), [len(position.legal) for position in positions])
            masks[rows, np.concatenate([position.legal for position in positions])] = 1
        return masks


class ChessPosition(Position):
    """A position of chess, with moves in SAN; coordinates as in UCI (`e2e4`, `a7a8q`) are read as well."""

    __slots__ = ()

    def readable(self) -> dict[str, int]:
        """Returns the numbers of all legal moves in both notations."""
        return {**self.notations(), **self.coordinates()}

    def coordinates(self) -> dict[str, int]:
        """Returns the numbers of all legal moves by their coordinates."""
        read = importlib.import_module("pyspiel").chess.action_to_move
        board = self.state.board()
        return {read(number, board).to_lan(): number for number in self.legal.tolist()}


class ChessGame(Game):
    """Chess, with OpenSpiel's planes and numbers of moves."""

    position_type = ChessPosition
