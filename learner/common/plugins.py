"""Finds what users add: by the name of an entry point that an installed package declares, or as `module:callable`.

Whatever it raises is the user's error, ``sys.exit`` and KeyboardInterrupt included: a real Ctrl-C raises nothing in the
learner, whose commands leave it to the system, or handle it, from their first line on (`learner.cli.main`).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from learner.common.exits import ExitCode, UserError


def find(setting: str, name: str, group: str, own: Mapping[str, Callable[..., Any] | str]) -> Callable[..., Any]:
    """Returns the callable of a name that a run file gives.

    Args:
        setting: where the name stands, for messages.
        name: one of ours, of an entry point, or ``module:callable``; modules of the folder the learner was started in
            are found, too.
        group: of the entry points.
        own: what comes with Rollcast, by name, or ``module:callable`` of it; nothing that is installed takes its place.

    Raises:
        UserError: there is no such name, or what it names cannot be imported.
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
            f"{setting} names {name!r}, which nothing installed here declares (known: {known}); install the package "
            f"that does (entry point group {group}), or write module:callable",
        )
    return _load(setting, name, found[0])


def make(setting: str, name: str, call: Callable[[], Any]) -> Any:
    """Calls what `find` returned, with an error that names it.

    Raises:
        UserError: it raised; a UserError of its own goes through.
    """
    try:
        return call()
    except UserError:
        raise
    except BaseException as error:  # see above
        raise UserError(ExitCode.RUN_FILE, f"{setting} names {name!r}, which failed: {in_one_line(error)}") from error


def in_one_line(error: BaseException) -> str:
    """Returns what kind of error it is and what it says; messages of other people's code may have many lines."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def place_of(error: BaseException) -> str:
    """Returns the innermost place of a traceback that is not in torch: ``file, line N, in function``; empty without one."""
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
    except BaseException as error:  # whatever a module of the user's raises while it is imported
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r} ({point.value}), which cannot be imported: {in_one_line(error)}",
        ) from error
    if not callable(found):
        raise UserError(ExitCode.RUN_FILE, f"{setting} names {name!r} ({point.value}), which is no function or class")
    checked: Callable[..., Any] = found
    return checked
