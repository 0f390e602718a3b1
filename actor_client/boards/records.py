"""Records of the games of this process: KIF for shogi, PGN for chess, one move a line for the rest."""

import time
from pathlib import Path
from typing import NamedTuple

from rollcast.chunks import GameRecord, GameResult
from rollcast.game_records import SCORES, GameText, record_fault, suffix_of

from actor_client.boards.positions import Position
from actor_client.boards.shogi import ShogiGame
from actor_client.exits import ActorError, ExitCode


class RecordFolder:
    """Writes some of the games that end into a folder.

    Args:
        folder: The folder; made if it does not exist.
        every: Writes each Nth game, beginning with the first.

    Raises:
        ActorError: The folder cannot be made (NOT_WRITTEN).
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
            ActorError: The file cannot be written (NOT_WRITTEN).
        """
        self._games += 1
        if (self._games - 1) % self._every:
            return None
        path = self._folder / f"game-{self._games:06d}{suffix_of(position.game.name)}"
        try:
            path.write_text(text_of(position, names, time.strftime("%Y.%m.%d")).render(), encoding="utf-8")
        except OSError as error:
            raise _failed(path, error) from error
        return path


def text_of(position: Position, names: tuple[str, str], date: str) -> GameText:
    """Returns the record of a game.

    Args:
        position: The last position.
        names: The players, the first mover first.
        date: The day, as `2026.01.31`.
    """
    return GameText(position.game.name, moves_of(position), names, date, SCORES[result_of(position)], _ending(position))


class BoardGame(NamedTuple):
    """A finished game of a table; a `FinishedGame` of the rollout.

    Attributes:
        position: Its last position.
        first_team: The team that moved first.
    """

    position: Position
    first_team: int

    def record(self, match: int) -> GameRecord | None:
        """Returns the record of the game; None if it is beyond the limits of records."""
        name, moves = self.position.game.name, tuple(moves_of(self.position))
        if record_fault(name, "\n".join(moves)):
            return None
        return GameRecord(match, name, self.first_team, result_of(self.position), moves)


def moves_of(position: Position) -> list[str]:
    """Returns all moves of a game from its first position, in the notation of the game."""
    state = position.game.start().state
    moves = []
    for raw in position.state.history():
        moves.append(str(state.action_to_string(state.current_player(), raw)))
        state.apply_action(raw)
    return moves


def result_of(position: Position) -> GameResult:
    """Returns the result of a game for the first mover; UNKNOWN before its end."""
    if position.returns is None:
        return GameResult.UNKNOWN
    first = position.returns[0]
    return GameResult.WON if first > 0 else GameResult.LOST if first < 0 else GameResult.DRAWN


def _ending(position: Position) -> str:
    """Returns how a game of shogi ended, in the words of KIF; empty for other games."""
    if not isinstance(position.game, ShogiGame):
        return ""
    if position.returns is None:
        return "中断"
    if position.is_resigned:
        return "投了"
    if position.returns[0] == 0:
        return "千日手" if position.state.is_terminal() else "持将棋"
    return "反則勝ち" if position.state.is_repetition_end() else "詰み"


def _failed(path: Path, error: OSError) -> ActorError:
    return ActorError(ExitCode.NOT_WRITTEN, f"{path} cannot be written: {error.strerror or error}")
