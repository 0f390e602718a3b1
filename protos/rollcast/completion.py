"""Writes the completion scripts of shells. Commands and flags come from the parsers, and files where a value is a path."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

import shtab

from rollcast.parsers import subparsers_of, walk

_FILES: Final = frozenset({"BUILD", "FILE", "FILE.demo", "MODEL.onnx", "PLAYER", "POLICY", "RUN.yaml"})
_FOLDERS: Final = frozenset({"DIR", "RUN"})
"""Names that the help shows for values that are, or may be, paths."""
_DIRECTORIES: Final = "(__fish_complete_directories)"
_FISH_HEAD: Final = """\
# Completion of {prog} in fish: save it as ~/.config/fish/completions/{prog}.fish
function __{name}_at
    set -l known {known}
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- (string join ' ' -- $path $word) $known
            set -a path $word
        end
    end
    set -l here (string join ' ' -- $path)
    test "$here" = "$argv"
end
complete -c {prog} -f
"""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Returns the script with which a shell completes a command.

    Args:
        parser: The command's parser.
        shell: bash, zsh, tcsh or fish.
    """
    if shell == "fish":
        return _fish(parser)
    for each in walk(parser):
        for action in each._actions:  # noqa: SLF001 - argparse has no other way
            if action.metavar in _FILES | _FOLDERS:
                kind = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY
                action.complete = kind  # type: ignore[attr-defined]  # shtab's way
    return f"{shtab.complete(parser, shell)}\n"


def _fish(parser: argparse.ArgumentParser) -> str:
    """Returns the script for fish, which shtab does not have."""
    prog = parser.prog
    paths = {"": parser, **dict(_paths(parser, ""))}
    name = prog.replace("-", "_")
    lines = [_FISH_HEAD.format(prog=prog, name=name, known=" ".join(map(_quoted, list(paths)[1:]))).rstrip()]
    for path, each in paths.items():
        begin = f"complete -c {prog} -n {_quoted(f'__{name}_at {path}'.rstrip())}"
        lines += [f"{begin} {rest}" for rest in _completions(each)]
    return "\n".join(lines) + "\n"


def _paths(parser: argparse.ArgumentParser, above: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yields each command below a parser, with the words that lead to it."""
    for name, command in subparsers_of(parser).items():
        path = f"{above} {name}".strip()
        yield path, command
        yield from _paths(command, path)


def _completions(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields what a parser adds to fish's command `complete`."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for choice in action._choices_actions:  # noqa: SLF001 - as above
                yield f"-a {_quoted(choice.dest)} -d {_quoted(choice.help or '')}"
            continue
        flags = " ".join(
            f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings
        )
        value = _value(action)
        if flags:
            yield f"{flags}{value} -d {_quoted((action.help or '').replace('%%', '%'))}"
        elif value != " -x":
            yield value.replace(" -r", "").strip()


def _value(action: argparse.Action) -> str:
    """Returns the arguments of `complete` for the value of a flag or the word of a position."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return f" -x -a {_quoted(' '.join(map(str, action.choices)))}"
    if action.metavar in _FILES:
        return " -r -F"
    return f" -x -a {_quoted(_DIRECTORIES)}" if action.metavar in _FOLDERS else " -x"


def _quoted(text: str) -> str:
    """Returns a text as one word of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
