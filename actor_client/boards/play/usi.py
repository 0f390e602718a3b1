"""An engine for programs that play shogi, with the protocol USI (Universal Shogi Interface).

Commands: usi, isready, setoption, usinewgame, position, go, stop, ponderhit, gameover, quit. Others are ignored, as the
protocol demands. A thread of its own thinks, so that `stop` and `quit` are heard at once.
"""

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TextIO

from actor_client.boards.play.players import ModelPlayer
from actor_client.boards.play.search import Found
from actor_client.boards.positions import BadNotation, Game, Position
from actor_client.exits import ActorError

MARGIN_SECONDS: Final = 0.1
"""Time of a move that is left for the way of the answer."""
_SHARE: Final = 40
"""A move takes this part of the remaining time, if there is no time for each move."""
_LEAST_SECONDS: Final = 0.01
_RESIGNS: Final = "resign"
_LONGEST_LINE: Final = 2**20
_SPINS: Final = {"SearchPlies": ("plies", 0, 64), "SearchWidth": ("width", 1, 1024)}
_TEMPERATURE: Final = "Temperature"
"""In hundredths, because options are whole numbers."""


class Limits(NamedTuple):
    """Limits the search of one `go`.

    Attributes:
        seconds: Time for the move; infinite without a limit.
        waits: The move is sent only after `stop` or `ponderhit`.
    """

    seconds: float
    waits: bool


def read_limits(words: Sequence[str], mover: int) -> Limits:
    """Returns the limits of a `go`; numbers that cannot be read count as 0.

    Args:
        words: The words after `go`.
        mover: The seat that moves.
    """
    times = {name: _number(value) for name, value in itertools.pairwise(words)}
    waits = "infinite" in words or "ponder" in words
    if "movetime" in times:
        return Limits(_usable(times["movetime"]), waits)
    own = "wtime" if mover else "btime"
    if not {own, "byoyomi", "binc", "winc"} & set(times):
        return Limits(math.inf, waits)
    remaining = times.get(own, 0)
    each = times.get("byoyomi", 0) + times.get("winc" if mover else "binc", 0)
    return Limits(min(_usable(each + remaining / _SHARE), _usable(each + remaining)), waits)


def _usable(milliseconds: float) -> float:
    return max(_LEAST_SECONDS, milliseconds / 1000 - MARGIN_SECONDS)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0


class UsiEngine:
    """One conversation.

    Args:
        game: Shogi.
        player: Chooses the moves.
        name: Name of the engine, one line.
        source: Lines of the interface.
        sink: Answers.
    """

    def __init__(self, game: Game, player: ModelPlayer, name: str, *, source: TextIO, sink: TextIO) -> None:
        self._game = game
        self._player = player
        self._name = name
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()
        self._position: Position | None = game.start()
        self._thought: threading.Thread | None = None
        self._stop = threading.Event()
        self._released = threading.Event()
        self._limits = Limits(math.inf, waits=False)
        self._until = math.inf
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "usi": self._introduce,
            "isready": lambda _: self._say("readyok"),
            "setoption": self._set,
            "usinewgame": lambda _: self._halt(),
            "position": self._place,
            "go": self._go,
            "stop": lambda _: self._halt(),
            "gameover": lambda _: self._halt(),
            "ponderhit": lambda _: self._play_on(),
        }

    def run(self) -> None:
        """Answers until `quit` or the end of the input."""
        try:
            while line := self._source.readline(_LONGEST_LINE):
                words = line.split()
                if words[:1] == ["quit"]:
                    return
                command = self._commands.get(words[0]) if words else None
                if command is not None:
                    command(words[1:])
        finally:
            self._halt()

    def _introduce(self, _: list[str]) -> None:
        self._say(f"id name {self._name}")
        self._say("id author Rollcast")
        for option, (field, least, most) in _SPINS.items():
            value = getattr(self._player.style, field)
            self._say(f"option name {option} type spin default {value} min {least} max {most}")
        value = round(100 * self._player.style.temperature)
        self._say(f"option name {_TEMPERATURE} type spin default {value} min 0 max 10000")
        self._say("usiok")

    def _set(self, words: list[str]) -> None:
        """Sets an option: `name NAME value NUMBER`; others are ignored, as interfaces send some of their own."""
        if len(words) != 4 or words[0] != "name" or words[2] != "value":
            return
        self._halt()
        name, number = words[1], _number(words[3])
        style = self._player.style
        if name == _TEMPERATURE:
            self._player.style = style._replace(temperature=min(number, 10000) / 100)
        elif name in _SPINS:
            field, least, most = _SPINS[name]
            self._player.style = style._replace(**{field: min(max(number, least), most)})

    def _place(self, words: list[str]) -> None:
        """Takes a position: `startpos` or `sfen SFEN`, then `moves ...`."""
        self._halt()
        try:
            self._position = self._read(words)
        except BadNotation as error:
            self._position = None
            self._say(f"info string error: {error}")

    def _read(self, words: list[str]) -> Position:
        """Returns the position that words describe.

        Raises:
            BadNotation: They describe none.
        """
        at = words.index("moves") if "moves" in words else len(words)
        start, moves = words[:at], words[at + 1 :]
        if start[:1] == ["sfen"]:
            position = self._game.start(" ".join(start[1:]))
        elif start == ["startpos"]:
            position = self._game.start()
        else:
            raise BadNotation("write position startpos or position sfen SFEN, then moves ...")
        for move in moves:
            position.play(position.read_move(move))
        return position

    def _go(self, words: list[str]) -> None:
        """Begins to think; `bestmove` follows."""
        began = time.monotonic()
        self._halt()
        if words[:1] == ["mate"]:
            self._say("checkmate notimplemented")
            return
        self._stop, self._released = threading.Event(), threading.Event()
        position = self._position
        self._limits = read_limits(words, 0 if position is None else position.mover)
        self._until = math.inf if self._limits.waits else began + self._limits.seconds
        self._thought = threading.Thread(target=self._think, args=(position, self._limits.waits), name="usi")
        self._thought.start()

    def _play_on(self) -> None:
        """Counts the time from now, because the opponent has played the move that was expected."""
        self._until = time.monotonic() + self._limits.seconds
        self._released.set()

    def _think(self, position: Position | None, waits: bool) -> None:
        """Chooses and tells a move; a position that is over, or that could not be read, is resigned."""
        best, stop, released = _RESIGNS, self._stop, self._released

        def is_over() -> bool:
            return stop.is_set() or time.monotonic() >= self._until

        if position is not None and not position.is_over:
            try:
                found = self._player.choose(position, is_over=is_over, each=self._inform)
                best = position.notation(found.number)
            except ActorError as error:
                self._say(f"info string error: {error.message}")
        if waits:
            released.wait()
        self._say(f"bestmove {best}")

    def _inform(self, found: Found, seconds: float) -> None:
        self._say(
            f"info depth {found.plies} nodes {found.positions} time {int(1000 * seconds)} "
            f"score cp {int(1000 * found.value)}"
        )

    def _halt(self) -> None:
        """Ends the present thought, which tells its move."""
        self._stop.set()
        self._released.set()
        if self._thought is not None:
            self._thought.join()
            self._thought = None

    def _say(self, line: str) -> None:
        with self._writing:
            print(line, file=self._sink, flush=True)
