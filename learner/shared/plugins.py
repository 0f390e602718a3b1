"""Finds users' extensions: by the entry point of an installed package, or as `module:callable`.

Any exception of an extension is the user's error, including ``sys.exit`` and KeyboardInterrupt: a real Ctrl-C raises
nothing in the learner, whose commands leave it to the system or handle it from their first line (`learner.cli.cli.main`).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from rollcast.text import in_one_line

from learner.shared.exits import ExitCode, UserError


def find(setting: str, name: str, group: str, own: Mapping[str, Callable[..., Any] | str]) -> Callable[..., Any]:
    """Returns the callable for a name in a run file.

    Args:
        setting: Setting that holds the name, for messages.
        name: A built-in name, an entry point, or ``module:callable``; modules in the learner's working directory are
            found too.
        group: Group of the entry points.
        own: Built-in callables by name, or their ``module:callable``; no installed package replaces them.

    Raises:
        UserError: The name is unknown, or its target cannot be imported.
    """
    ours = own.get(name)
    if ours is not None:
        return _load(setting, name, EntryPoint(name, ours, group)) if isinstance(ours, str) else ours
    if ":" in name:
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)
        return _load(setting, name, EntryPoint(name, name, group))
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        known = ", ".join(sorted({*own, *(point.name for point in entry_points(group=group))})) or "none"
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r}, which no installed package declares (known: {known}); install the package that "
            f"declares it (entry point group {group}), or write module:callable",
        )
    return _load(setting, name, found[0])


def make(setting: str, name: str, call: Callable[[], Any]) -> Any:
    """Calls the result of `find`, and names it in errors.

    Raises:
        UserError: The call raised an exception; a UserError passes unchanged.
    """
    try:
        return call()
    except UserError:
        raise
    except BaseException as error:  # see above
        raise UserError(ExitCode.RUN_FILE, f"{setting} names {name!r}, which failed: {in_one_line(error)}") from error


def place_of(error: BaseException) -> str:
    """Returns the innermost traceback entry outside torch: ``file, line N, in function``; empty if there is none."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "torch"
    ]
    if not frames:
        return ""
    frame, line = frames[-1]
    return f"{frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"


def _load(setting: str, name: str, point: EntryPoint) -> Callable[..., Any]:
    module, _, attribute = point.value.partition(":")
    try:
        found: Any = importlib.import_module(module.strip())
        for part in attribute.strip().split("."):
            found = getattr(found, part)
    except BaseException as error:  # any exception of a user's module during its import
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r} ({point.value}), which cannot be imported: {in_one_line(error)}",
        ) from error
    if not callable(found):
        raise UserError(
            ExitCode.RUN_FILE, f"{setting} names {name!r} ({point.value}), which is not a function or class"
        )
    checked: Callable[..., Any] = found
    return checked
