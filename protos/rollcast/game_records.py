"""Records of games of two players as text that programs for games read: KIF, PGN, or one move a line."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from rollcast import limits
from rollcast.chunks import GameResult
from rollcast.kif import render_kif

SCORES: Final = {GameResult.WON: "1-0", GameResult.DRAWN: "1/2-1/2", GameResult.LOST: "0-1", GameResult.UNKNOWN: "*"}
"""Results of the first mover as in PGN."""
_SAN: Final = re.compile(r"[KQRBNPOa-h][KQRBNOa-hx1-8=+#-]{1,15}")
_PGN_WIDTH: Final = 80


def record_fault(game: str, moves: str) -> str:
    """Returns which limit of a `GameRecord` is exceeded, in words; empty if none is.

    Args:
        game: Name of the game.
        moves: Its moves, one a line.
    """
    if limits.GAME_PATTERN.fullmatch(game) is None:
        return f"game {game[:80]!r} does not match {limits.GAME_PATTERN.pattern}"
    if len(moves) > limits.MAX_RECORD_CHARACTERS:
        return f"{len(moves)} characters; at most {limits.MAX_RECORD_CHARACTERS} are allowed"
    lines = moves.split("\n") if moves else []
    if len(lines) > limits.MAX_RECORD_MOVES:
        return f"{len(lines)} moves; at most {limits.MAX_RECORD_MOVES} are allowed"
    for move in lines:
        if limits.MOVE_PATTERN.fullmatch(move) is None:
            return f"move {move[:80]!r} does not match {limits.MOVE_PATTERN.pattern}"
    return ""


class GameText(NamedTuple):
    """A game from its first position.

    Attributes:
        game: Name of the game, as `shogi` or `go(board_size=9)`.
        moves: Its moves in the notation of the game: USI for shogi, SAN for chess.
        names: The players, the first mover first.
        date: The day, as `2026.01.31`.
        score: The result as in PGN; see `SCORES`.
        ending: How a game of shogi ended, in the words of KIF; empty if unknown.
    """

    game: str
    moves: Sequence[str]
    names: tuple[str, str]
    date: str
    score: str
    ending: str = ""

    @property
    def suffix(self) -> str:
        """The ending of the file's name."""
        return suffix_of(self.game)

    def render(self) -> str:
        """Returns the content of the file.

        Raises:
            ValueError: A move is not one of the game's notation.
        """
        kind = self.game.partition("(")[0]
        if kind == "shogi":
            return render_kif(self.moves, self.names, self.date, self.score, self.ending)
        return self._pgn() if kind == "chess" else self._plain()

    def _pgn(self) -> str:
        tags = {
            "Event": "Rollcast", "Site": "?", "Date": self.date, "Round": "-",
            "White": self.names[0], "Black": self.names[1], "Result": self.score,
        }  # fmt: skip
        words = []
        for index, move in enumerate(self.moves):
            if _SAN.fullmatch(move) is None:
                raise ValueError(f"{move[:40]!r} is not a move of chess in SAN")
            words += [f"{index // 2 + 1}."] if index % 2 == 0 else []
            words.append(move)
        lines, line = [], ""
        for word in [*words, self.score]:
            if len(line) + len(word) >= _PGN_WIDTH:
                lines.append(line)
                line = ""
            line = f"{line} {word}" if line else word
        heads = [f'[{name} "{_quoted(value)}"]' for name, value in tags.items()]
        return "\n".join([*heads, "", *lines, line, ""])

    def _plain(self) -> str:
        heads = [
            f"# game: {self.game}",
            f"# first: {self.names[0]}",
            f"# second: {self.names[1]}",
            f"# result: {self.score}",
        ]
        return "\n".join([*heads, *self.moves, ""])


def suffix_of(game: str) -> str:
    """Returns the ending of the name of a file with a record of a game."""
    return {"shogi": ".kifu", "chess": ".pgn"}.get(game.partition("(")[0], ".txt")


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
