"""Records of games that programs for games read: KIF for shogi, PGN for chess, one move a line for the rest."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from actor_client.boards.kif import render_kif
from actor_client.boards.positions import ChessGame, Position
from actor_client.boards.shogi import ShogiGame
from actor_client.exits import ActorError, ExitCode


class RecordedGame(NamedTuple):
    """A game from its first position.

    Attributes:
        moves: Its moves in the notation of the game.
        position: The position after them.
        names: The players, the first mover first.
        date: The day, as `2026.01.31`.
    """

    moves: Sequence[str]
    position: Position
    names: tuple[str, str]
    date: str

    @property
    def score(self) -> str:
        """The result as in PGN."""
        returns = self.position.returns
        if returns is None:
            return "*"
        first = returns[0]
        return "1-0" if first > 0 else "0-1" if first < 0 else "1/2-1/2"


def suffix_of(position: Position) -> str:
    """Returns the ending of the file of a game's record."""
    if isinstance(position.game, ShogiGame):
        return ".kifu"
    return ".pgn" if isinstance(position.game, ChessGame) else ".txt"


def render(game: RecordedGame) -> str:
    """Returns the record as text."""
    if isinstance(game.position.game, ShogiGame):
        return render_kif(game.moves, game.position, game.names, game.date)
    return _pgn(game) if isinstance(game.position.game, ChessGame) else _plain(game)


def _pgn(game: RecordedGame) -> str:
    tags = {
        "Event": "Rollcast", "Site": "?", "Date": game.date, "Round": "-",
        "White": game.names[0], "Black": game.names[1], "Result": game.score,
    }  # fmt: skip
    words = []
    for index, move in enumerate(game.moves):
        words += [f"{index // 2 + 1}."] if index % 2 == 0 else []
        words.append(move)
    lines, line = [], ""
    for word in [*words, game.score]:
        if len(line) + len(word) >= 80:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    heads = [f'[{name} "{value}"]' for name, value in tags.items()]
    return "\n".join([*heads, "", *lines, line, ""])


def _plain(game: RecordedGame) -> str:
    heads = [
        f"# game: {game.position.game.name}",
        f"# first: {game.names[0]}",
        f"# second: {game.names[1]}",
        f"# result: {game.score}",
    ]
    return "\n".join([*heads, *game.moves, ""])


class RecordFolder:
    """Writes some of the games that end into a folder.

    Args:
        folder: The folder; made if it does not exist.
        every: Writes each Nth game, beginning with the first.
        names: Returns the names of the players of teams 0 and 1.

    Raises:
        ActorError: The folder cannot be made (RECORDING_FAILED).
    """

    def __init__(self, folder: Path, every: int = 1) -> None:
        self._folder = folder
        self._every = every
        self._games = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed(folder, error) from error

    def finished(self, position: Position, names: tuple[str, str]) -> Path | None:
        """Takes a game that ended, or was given up; returns the file if it was written.

        Args:
            position: Its last position.
            names: The players, the first mover first.

        Raises:
            ActorError: The file cannot be written (RECORDING_FAILED).
        """
        self._games += 1
        if (self._games - 1) % self._every:
            return None
        return write_record(self._folder / f"game-{self._games:06d}{suffix_of(position)}", position, names)


def write_record(
    path: Path, position: Position, names: tuple[str, str], clock: Callable[[], float] = time.time
) -> Path:
    """Writes the record of a game; returns the file.

    Args:
        path: The file; a file that exists is replaced.
        position: The last position.
        names: The players, the first mover first.
        clock: Seconds since 1970.

    Raises:
        ActorError: The file cannot be written (RECORDING_FAILED).
    """
    date = time.strftime("%Y.%m.%d", time.localtime(clock()))
    try:
        path.write_text(render(RecordedGame(moves_of(position), position, names, date)), encoding="utf-8")
    except OSError as error:
        raise _failed(path, error) from error
    return path


def moves_of(position: Position) -> list[str]:
    """Returns all moves of a game from its first position, in the notation of the game."""
    state = position.game.start().state
    moves = []
    for raw in position.state.history():
        moves.append(str(state.action_to_string(state.current_player(), raw)))
        state.apply_action(raw)
    return moves


def _failed(path: Path, error: OSError) -> ActorError:
    return ActorError(ExitCode.RECORDING_FAILED, f"{path} cannot be written: {error.strerror or error}")
