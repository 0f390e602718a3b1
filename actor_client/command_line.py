"""Command lines with words that nothing knows: an error that names the right one where it is near."""

import argparse
import difflib
from collections.abc import Sequence


def unknown_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Returns what is wrong with a command line that has words left over.

    Args:
        parser: Of the command; its flags are the right ones.
        words: What it does not know.
    """
    flags = [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001 - nothing else has them
    said = f"unrecognized arguments: {' '.join(words)}"
    for word in words:
        if word.startswith("--") and (near := difflib.get_close_matches(word.partition("=")[0], flags, n=1)):
            return f"{said}; did you mean {near[0]}?"
    return said
