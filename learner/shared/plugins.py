"""Finds users' extensions: by the entry point of an installed package, or as `module:callable`.

Any exception of an extension is the user's error, including ``sys.exit`` and KeyboardInterrupt: a real Ctrl-C raises
nothing in the learner, whose commands leave it to the system or handle it from their first line (`learner.cli.cli.main`).
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rollcast.text import in_one_line

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import open_regular
from learner.shared.runfolder.names import CONFIGURATION

SEARCH_VARIABLE: Final = "ROLLCAST_MODULES"
"""Has further folders with modules: those of the program that started this one."""
_BASES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "rollcast.trainers": ("learner.training.trainers.base", "Trainer"),
        "rollcast.companions": ("learner.training.trainers.companions.trainer", "CompanionTrainer"),
        "rollcast.encoders": ("torch.nn.modules.module", "Module"),
        "rollcast.bodies": ("torch.nn.modules.module", "Module"),
        "rollcast.policies": ("learner.training.networks.policy", "PolicyNetwork"),
    }
)
"""What the classes of a group must extend, by module and name: this process may live without torch."""


def find(setting: str, name: str, group: str, own: Mapping[str, Callable[..., Any] | str]) -> Callable[..., Any]:
    """Returns the callable for a name in a run file.

    Args:
        setting: Setting that holds the name, for messages.
        name: A built-in name, an entry point, or ``module:callable``; modules in the learner's working directory and in
            the folder of its run file (`search`) are found too.
        group: Group of the entry points.
        own: Built-in callables by name, or their ``module:callable``; no installed package replaces them.

    Raises:
        UserError: The name is unknown, or its target cannot be imported, or is a class that does not fit the group.
    """
    ours = own.get(name)
    if ours is not None:
        return _load(setting, name, EntryPoint(name, ours, group)) if isinstance(ours, str) else ours
    if ":" in name:
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)
        search(*os.environ.get(SEARCH_VARIABLE, "").split(os.pathsep))
        return _fitting(setting, name, group, _load(setting, name, EntryPoint(name, name, group)))
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        known = ", ".join(sorted({*own, *(point.name for point in entry_points(group=group))})) or "none"
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r}, which no installed package declares (known: {known}); install the package that "
            f"declares it (entry point group {group}), or write module:callable",
        )
    return _fitting(setting, name, group, _load(setting, name, found[0]))


def search(*folders: str) -> None:
    """Lets `find` look for modules in more folders, behind all others, so that no other import finds something else there."""
    sys.path.extend(folder for folder in folders if folder and folder not in sys.path)


def search_beside(run_file: Path) -> None:
    """Lets `find` look for modules in the folder of a run file; not in that of a run, whose settings may come from elsewhere."""
    if run_file.name != CONFIGURATION:
        search(str(run_file.absolute().parent))


def searched() -> dict[str, str]:
    """Returns the variable by which a process that this one starts finds the modules that this one does."""
    return {SEARCH_VARIABLE: os.pathsep.join(sys.path)}


def source(name: str) -> dict[str, str]:
    """Returns the file of ``module:callable`` and its SHA-256, for the records of a run; empty texts if unknown."""
    file = ""
    try:
        spec = find_spec(name.partition(":")[0].strip())
        file = "" if spec is None or spec.origin is None else spec.origin
        with open_regular(Path(file)) as content:
            digest = hashlib.sha256(content.read()).hexdigest()
    except (ImportError, OSError, ValueError):
        digest = ""
    return {"name": name, "file": file, "sha256": digest}


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
    told = f"{setting} names {name!r}" + (f" ({point.value})" if point.value != name else "")
    try:
        found: Any = _import(module.strip()) if point.value == name else importlib.import_module(module.strip())
        for part in attribute.strip().split("."):
            found = getattr(found, part)
    except BaseException as error:  # any exception of a user's module during its import
        is_elsewhere = isinstance(error, ModuleNotFoundError) and point.value == name
        hint = "; start this in the module's folder, or add that to PYTHONPATH" if is_elsewhere else ""
        raise UserError(ExitCode.RUN_FILE, f"{told}, which cannot be imported: {in_one_line(error)}{hint}") from error
    if not callable(found):
        raise UserError(ExitCode.RUN_FILE, f"{told}, which is not a function or class")
    checked: Callable[..., Any] = found
    return checked


def _import(module: str) -> Any:
    """Imports a module that a run file names, unless it is in a run folder: that came from elsewhere, perhaps with the name.

    Raises:
        ImportError: It cannot be imported, or is in a run folder.
    """
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:count]))  # imports what is above it, which has been looked at
        places = () if spec is None else (spec.origin, *(spec.submodule_search_locations or ()))
        for place in map(Path, filter(None, places)):
            for folder in (place, *place.parents):
                if (folder / CONFIGURATION).is_file():
                    raise ImportError(
                        f"{place} is beside the {CONFIGURATION} of a run, from where no code is run: move it"
                    )
                if str(folder) in sys.path or folder == Path.cwd():
                    break
    return importlib.import_module(module)


def _fitting(setting: str, name: str, group: str, found: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what was found. What is no class is called, and then checked.

    Raises:
        UserError: It is a class, and extends another one than those of its group.
    """
    base = _BASES.get(group)
    if (
        base is None
        or not isinstance(found, type)
        or base in {(each.__module__, each.__name__) for each in found.__mro__}
    ):
        return found
    raise UserError(ExitCode.RUN_FILE, f"{setting} names {name!r}, a class that does not extend {'.'.join(base)}")
