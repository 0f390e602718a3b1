"""Plays a person against a model in a terminal."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from actor_client.boards.play.players import ModelPlayer
from actor_client.boards.positions import BadNotation, Game, Position
from actor_client.boards.records import RecordFolder

HELP: Final = """\
  MOVE      play a move, such as {example}
  moves     list the legal moves
  hint      show the model's likeliest moves
  back      take back your last move and the answer
  board     show the board again
  resign    give up
  new       begin another game; sides change
  help, ?   show this
  quit      leave; q and exit do the same"""
_HINTS: Final = 5
_COLUMNS: Final = 12
SEATS: Final = ("first", "second")


class Terminal:
    """One conversation.

    Args:
        game: The game.
        player: Plays for the model.
        seat: The person's seat.
        records: Takes games that end; None keeps none.
        source: Lines of the person.
        sink: What the person reads.
    """

    def __init__(
        self,
        game: Game,
        player: ModelPlayer,
        seat: int,
        *,
        records: RecordFolder | None,
        source: TextIO,
        sink: TextIO,
    ) -> None:
        self._game = game
        self._player = player
        self._seat = seat
        self._records = records
        self._source = source
        self._sink = sink
        self._past: list[Position] = []
        self._position = game.start()
        self._commands: dict[str, Callable[[], bool]] = {
            "moves": self._list,
            "hint": self._hint,
            "back": self._take_back,
            "board": self._show,
            "resign": self._resign,
            "new": self._new,
            "help": self._help,
            "?": self._help,
            **dict.fromkeys(("quit", "q", "exit"), lambda: False),
        }

    def run(self) -> None:
        """Plays until the person leaves or the input ends."""
        self._say(f"You move {SEATS[self._seat]}. `help` lists the commands.")
        self._answer()
        self._show()
        goes_on = True
        while goes_on:
            self._say(f"{self._prompt()}> ", end="")
            line = self._source.readline()
            if not line:
                self._say("")
                return
            text = line.strip()
            if text:
                goes_on = self._take(text)

    def _prompt(self) -> str:
        return "over" if self._position.is_over else f"move {self._position.plies + 1}"

    def _take(self, text: str) -> bool:
        """Takes a line; returns whether the conversation continues."""
        command = self._commands.get(text.lower())
        if command is not None:
            return command()
        if self._position.is_over:
            self._say("The game is over: `new`, `back` or `quit`.")
            return True
        try:
            number = self._position.read_move(text)
        except BadNotation as error:
            self._say(f"{error}; `moves` lists the legal moves, `help` the commands.")
            return True
        self._past.append(self._position.copy())
        self._position.play(number)
        self._answer()
        return self._show()

    def _answer(self) -> None:
        """Plays the model's moves until the person is to move, and tells the end of the game."""
        while not self._position.is_over and self._position.mover != self._seat:
            number = self._player.choose(self._position).number
            self._say(f"The model plays {self._position.notation(number)}.")
            self._position.play(number)

    def _show(self) -> bool:
        self._say(self._position.text())
        if self._position.is_over:
            self._end()
        return True

    def _end(self) -> None:
        """Tells the result, and records the game."""
        returns = self._position.returns
        result = 0.0 if returns is None else returns[self._seat]
        said = "You win." if result > 0 else "The model wins." if result < 0 else "A draw."
        if self._position.is_resigned:
            said = f"You have resigned. {said}"
        self._say(f"{said} {self._position.plies} moves were played.")
        if self._records is not None and self._position.plies:
            names = ("Person", "Model") if self._seat == 0 else ("Model", "Person")
            path: Path | None = self._records.finished(self._position, names)
            if path is not None:
                self._say(f"The game is in {path}.")

    def _list(self) -> bool:
        if self._position.is_over:
            self._say("The game is over.")
            return True
        names = sorted(self._position.notations())
        for at in range(0, len(names), _COLUMNS):
            self._say("  " + " ".join(f"{name:6}" for name in names[at : at + _COLUMNS]).rstrip())
        return True

    def _hint(self) -> bool:
        if self._position.is_over:
            self._say("The game is over.")
            return True
        for number, chance in self._player.likeliest(self._position, _HINTS):
            self._say(f"  {self._position.notation(number):8} {chance:6.1%}")
        return True

    def _take_back(self) -> bool:
        if not self._past:
            self._say("There is no move of yours to take back.")
            return True
        self._position = self._past.pop()
        return self._show()

    def _resign(self) -> bool:
        if self._position.is_over:
            self._say("The game is over.")
            return True
        self._past.append(self._position.copy())
        self._position.resign()
        self._end()
        return True

    def _new(self) -> bool:
        self._seat = 1 - self._seat
        self._past, self._position = [], self._game.start()
        self._say(f"You move {SEATS[self._seat]}.")
        self._answer()
        return self._show()

    def _help(self) -> bool:
        example = "" if self._position.is_over else next(iter(self._position.notations()))
        self._say(HELP.format(example=example or "..."))
        return True

    def _say(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._sink, flush=True)


def choose_seat(side: str, seed: int | None) -> int:
    """Returns the person's seat: first, second, or a drawn one."""
    return random.Random(seed).randrange(2) if side == "random" else SEATS.index(side)
