"""Command lines with words that no parser knows: an error that names the right one where it is near."""

import argparse
import difflib
from typing import Any


class StrictParser(argparse.ArgumentParser):
    """A parser that refuses what it does not know itself: otherwise the parser of all commands would, with its own help."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses a command line; words left over are an error."""
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
