"""The file of a tournament's finished matches, from which a killed tournament continues.

Each line is a JSON object. The first states the format and the settings under which all games were played; ``start`` lines
number the starts of the command; ``match`` lines hold the results of one match, all of its games together. A line is on
disk before its games count. A line without an end, at which the process was killed, is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import open_regular, sync_folder
from learner.shared.saved_values import count, number, reason, shown, text
from learner.training.matches.players import Player
from learner.training.matches.rating import Pair, Results

GAMES_FILE: Final = "games.jsonl"
FORMAT: Final = 1
_MAX_BYTES: Final = 256 << 20
_MAX_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings that games must share to count together.

    Attributes:
        behavior: Name of the behavior.
        random_moves: Moves of each player at the start of a game that are random.
        deterministic: Whether models play their most likely actions.
    """

    behavior: str
    random_moves: int
    deterministic: bool


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The results of one match.

    Attributes:
        number: Number of the match, unique in the tournament.
        first, second: Identities of the players in the first and second seat (`Player.identity`).
        wins, draws, losses: Numbers of games, as seen by the first.
        mean_length: Mean number of the first player's moves in a game.
        actor: Name of the actor.
    """

    number: int
    first: str
    second: str
    wins: int
    draws: int
    losses: int
    mean_length: float
    actor: str

    @property
    def games(self) -> int:
        """Number of games."""
        return self.wins + self.draws + self.losses


class Journal:
    """The finished matches of a tournament, in a file that only grows.

    Args:
        path: The file; created if it does not exist.
        terms: Settings of the games.

    Attributes:
        start: Number of this start, from 1.
        matches: All finished matches, also of players that play no longer.

    Raises:
        UserError: The file cannot be read or written, is damaged, or holds games of other settings.
    """

    def __init__(self, path: Path, terms: Terms) -> None:
        self._path = path
        self.start = 1
        self.matches: list[MatchResult] = []
        try:
            content = read_regular(path, _MAX_BYTES) if path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            self._read(whole, terms)
            if len(whole) != len(content):
                os.truncate(path, len(whole))
            if not whole:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                sync_folder(path.parent)
            self._stream = open_regular(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise _unusable(path, error) from error
        if not whole:
            self._write({"kind": "tournament", "format": FORMAT, **asdict(terms)})
        self._write({"kind": "start", "number": self.start})

    @property
    def next_number(self) -> int:
        """A number that no match has."""
        return max((each.number for each in self.matches), default=0) + 1

    def add(self, match: MatchResult) -> None:
        """Writes a finished match to disk.

        Raises:
            UserError: The file cannot be written.
        """
        self._write({"kind": "match", **asdict(match)})
        self.matches.append(match)

    def results(self, players: Sequence[Player]) -> dict[Pair, Results]:
        """Returns the results of these players against one another, by their places; the first of a pair has the first seat."""
        places = {player.identity: place for place, player in enumerate(players)}
        found: dict[Pair, Results] = {}
        for each in self.matches:
            if each.first in places and each.second in places:
                total = found.setdefault((places[each.first], places[each.second]), Results())
                total.count(each.wins, each.draws, each.losses)
        return found

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, content: bytes, terms: Terms) -> None:
        for place, line in enumerate(content.splitlines(), 1):
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise TypeError("it is not an object")
                self._take(entry, terms, is_first=place == 1)
            except (KeyError, RecursionError, TypeError, ValueError) as error:
                raise UserError(
                    ExitCode.BAD_CHECKPOINT,
                    f"{self._path}, line {place}: {reason(error)}; correct or remove the line, or choose another folder with "
                    "--output",
                ) from error

    def _take(self, entry: Mapping[str, Any], terms: Terms, *, is_first: bool) -> None:
        """Takes a line.

        Raises:
            KeyError, TypeError, ValueError: It is not one that was written here.
            UserError: It states other settings.
        """
        kind = text(entry, "kind")
        if is_first != (kind == "tournament"):
            raise ValueError(f"a line of the kind {kind[:_MAX_SHOWN]!r} is not expected here")
        if kind == "tournament":
            self._check(entry, terms)
        elif kind == "start":
            self.start = max(self.start, count(entry, "number") + 1)
        elif kind == "match":
            self.matches.append(
                MatchResult(
                    count(entry, "number"),
                    text(entry, "first"),
                    text(entry, "second"),
                    count(entry, "wins"),
                    count(entry, "draws"),
                    count(entry, "losses"),
                    number(entry, "mean_length", least=0.0),
                    text(entry, "actor"),
                )
            )
        else:
            raise ValueError(f"a line of the kind {kind[:_MAX_SHOWN]!r} is not known")

    def _check(self, entry: Mapping[str, Any], terms: Terms) -> None:
        if entry["format"] != FORMAT:
            raise ValueError(f"the file has format {shown(entry['format'])}; this version reads {FORMAT}")
        for name, value in asdict(terms).items():
            if entry[name] != value:
                raise UserError(
                    ExitCode.USAGE,
                    f"the games in {self._path} were played with {name} {shown(entry[name])}, not {value!r}: use the same setting, "
                    "or choose another folder with --output",
                )

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self._stream.write(f"{json.dumps(entry)}\n".encode())
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise _unusable(self._path, error) from error


def _unusable(path: Path, error: OSError) -> UserError:
    return UserError(
        ExitCode.NOT_SAVED, f"{path} cannot be used: {error.strerror or error}; choose another folder with --output"
    )
