"""The parser of a command, which reports unknown words itself, old spellings of flags, and walks over parsers."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator
from typing import Any


class StrictParser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself; argparse would report them with the help of the top parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses a command line; unknown words are an error."""
        parsed, words = super().parse_known_args(args, namespace)
        if words:
            self.error(self._unrecognized(words))
        return parsed, words

    def _unrecognized(self, words: list[str]) -> str:
        flags = [flag for action in self._actions for flag in action.option_strings]
        said = f"unrecognized arguments: {' '.join(words)}"
        for word in words:
            if word.startswith("--") and (near := difflib.get_close_matches(word.partition("=")[0], flags, n=1)):
                return f"{said}; did you mean {near[0]}?"
        return said


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of a parser's commands, by name."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            return dict(action.choices)
    return {}


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields a parser and those of all its commands."""
    yield parser
    for command in subparsers_of(parser).values():
        yield from walk(command)


def add_old_spelling(parser: argparse.ArgumentParser, old: str, new: str) -> None:
    """Lets scripts use the old spelling of a flag, which the help does not show.

    Args:
        parser: Parser that has the flag.
        old: The spelling.
        new: The flag.
    """
    parser._option_string_actions[old] = parser._option_string_actions[new]  # noqa: SLF001 - argparse shows all others
