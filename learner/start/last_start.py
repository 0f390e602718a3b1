"""Compares a start of a run with the one before it, so that no flag of that start is forgotten in silence.

`configuration_sources.json` has the source of each setting. Flags that are no settings, such as those of `train` for its
actors, are in it by their own names, and the command is in it as `command`. Only starts of the same command are compared:
each takes flags that another does not.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rollcast.text import printable

from learner.shared.exits import UserError
from learner.shared.observe.summary import read_small_json
from learner.shared.results import in_results
from learner.shared.runfolder.names import CONFIGURATION, SOURCES

if TYPE_CHECKING:
    from learner.shared.settings.load import LoadedRun

_OF_ONE_START: Final = ("checkpoint_settings.", "rollcast.resume_checkpoint", "env_settings.seed")
"""Settings that name the run or say how one start begins; a resumed run keeps its seed."""
_SET: Final = "--set"
_COMMAND: Final = "command"
_DROP_IN: Final = "unity"
_ADDED: Final = "rollcast unity"
"""Source of a setting whose flag the user did not type."""
_MAX_NAMES: Final = 10
_MAX_NAME_CHARS: Final = 80
_COMMANDS: Final = {"train": "train --env ID", "serve": "serve RUN.yaml", _DROP_IN: "unity RUN.yaml"}


def with_flags(loaded: LoadedRun, parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> LoadedRun:
    """Returns the settings with the command among their sources, and those of its flags that are no settings.

    Args:
        loaded: The settings.
        parser: Parser of the command.
        parsed: Its command line.
    """
    drop_in: str | None = getattr(parsed, "drop_in", None)
    added = () if drop_in is None else drop_in.split(",")
    command = parsed.command if drop_in is None else _DROP_IN
    sources = {place: _ADDED if source in added else source for place, source in loaded.sources.items()}
    settings = {*loaded.sources.values(), _SET, "--drop-in"}
    given = [flag for flag in _given(parser, parsed) if flag not in settings]
    return replace(loaded, sources={_COMMAND: command, **sources, **dict.fromkeys(given, command)})


def left_out(folder: Path, loaded: LoadedRun) -> list[str]:
    """Returns the flags and variables of the last start that this one lacks, and that leave something changed.

    It returns nothing if the last start was one of another command.

    Args:
        folder: Folder of a run.
        loaded: Settings of this start, from `with_flags`.
    """
    from learner.shared.settings.layers import values_in  # noqa: PLC0415 - operators' commands load no settings
    from learner.shared.settings.load import effective_document  # noqa: PLC0415 - see above
    from learner.shared.settings.yaml_reader import read_document  # noqa: PLC0415 - see above

    sources = dict(_sources(folder))
    if sources.pop(_COMMAND, "") != loaded.sources.get(_COMMAND, ""):
        return []
    try:
        before = values_in(read_document(folder / CONFIGURATION).tree)
    except UserError:  # missing or damaged, which does not keep a run from its state
        return []
    now = values_in(effective_document(loaded))
    found: dict[str, None] = {}
    for place, source in sources.items():
        if place.startswith("--"):
            is_kept = place in loaded.sources
        else:
            is_given = bool(_name(place, loaded.sources.get(place, "")))  # in whatever way, and with whatever value
            is_kept = is_given or place.startswith(_OF_ONE_START) or (place in now and now[place] == before.get(place))
        if not is_kept and (name := _name(place, source)):
            found[name] = None
    return _first(found)


def starting_again(run_id: str, results_dir: Path) -> str:
    """Returns the command that continues a run, and the flags of its last start."""
    sources = dict(_sources(results_dir / run_id))
    command = _COMMANDS.get(sources.pop(_COMMAND, ""), _COMMANDS["serve"])
    names = {_name(place, source): None for place, source in sources.items() if not place.startswith(_OF_ONE_START)}
    given = _first(name for name in names if name and not (name == "--env" and "--env" in command))
    more = f", with what its last start had: {', '.join(given)}" if given else ""
    return f"rollcast {command} --run-id {shlex.quote(run_id)}{in_results(results_dir)} --resume=auto{more}"


def _first(names: Iterable[str]) -> list[str]:
    """Returns the first names, and the number of the others: the file may hold any number of any length."""
    found = [printable(name, _MAX_NAME_CHARS) for name in names]
    return found[:_MAX_NAMES] + ([f"{len(found) - _MAX_NAMES} more"] if len(found) > _MAX_NAMES else [])


def _given(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Iterator[str]:
    """Yields the flags that a command line has."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if action.option_strings and getattr(parsed, action.dest, action.default) != action.default:
            yield action.option_strings[-1]


def _sources(folder: Path) -> Iterator[tuple[str, str]]:
    for place, source in read_small_json(folder / SOURCES).items():
        if isinstance(source, str):
            yield place, source


def _name(place: str, source: str) -> str:
    """Returns a flag or a variable as users write it; empty for another source."""
    if place.startswith("--"):
        return place
    if source == _SET:
        return f"{_SET} {place}"
    return source.removeprefix("env ") if source.startswith(("--", "env ")) else ""
