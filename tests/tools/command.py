"""What the command lines of the tools share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn, Protocol, TypeVar

INTERRUPTED = 130


class Named(Protocol):
    """Something that is chosen by its name."""

    @property
    def name(self) -> str:
        """Returns its name."""


N = TypeVar("N", bound=Named)


def chosen(things: Sequence[N], names: Sequence[str], what: str) -> list[N]:
    """Returns the things of some names or beginnings of names, in their order; without names, all.

    Raises:
        ValueError: A name fits none.
    """
    for name in names:
        if not any(thing.name.startswith(name) for thing in things):
            raise ValueError(f"there is no {what} {name!r}; {what}s: {', '.join(thing.name for thing in things)}")
    exact = {thing.name for thing in things} & set(names)
    beginnings = tuple(name for name in names if name not in exact)
    return [thing for thing in things if not names or thing.name in exact or thing.name.startswith(beginnings)]


def tell(line: str) -> None:
    """Prints a line of progress."""
    sys.stderr.write(f"{line}\n")


def end_by_signals() -> None:
    """Lets SIGTERM and SIGHUP end this process as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt
