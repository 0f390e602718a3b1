"""Imports objects that a command line names as `module:callable`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rollcast.extras import install

from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.exits import ActorError, ExitCode


def import_callable(
    named: str, module: str, name: str, needed: str = "a callable that returns an environment"
) -> Callable[..., Any]:
    """Returns a callable of a module.

    Args:
        named: The user's text, for messages.
        module: The module.
        name: The object; dots lead to attributes.
        needed: Description of the callable, for messages.

    Raises:
        UnknownEnvironment: The module has no such callable.
    """
    if module.endswith(".py"):
        refuse_file(named, Path(module), name)
    found: Any = import_module(named, module)
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UnknownEnvironment(f"{named}: module {module} has no {name}")
    if not callable(found):
        raise UnknownEnvironment(f"{named}: {name} is {type(found).__name__}; {needed} is needed")
    result: Callable[..., Any] = found
    return result


def import_module(named: str, module: str) -> Any:
    """Imports a module, also from the working directory, as `python -m` would.

    Raises:
        UnknownEnvironment: The module cannot be imported.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        where = f"; looked in {here} and PYTHONPATH" if absent else ""
        if isinstance(error, ModuleNotFoundError) and error.name == "gym":
            where = "; gym is no longer maintained: write `import gymnasium as gym` in its place"
        said = f"{named}: module {module} cannot be imported: {one_line(error)}{where}"
        raise UnknownEnvironment(said, error) from error


def import_extra(module: str, name: str, extras: str) -> Any:
    """Imports a module of a package that an extra installs.

    Args:
        module: The module.
        name: Name of the package, for the message.
        extras: Extras that install it.

    Raises:
        ActorError: It is not installed (MISSING_EXTRA).
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ActorError(ExitCode.MISSING_EXTRA, f"{name} is not installed; {install(extras)}") from error


def refuse_file(named: str, file: Path, name: str) -> NoReturn:
    """Raises an error that explains how to name the module of a file.

    Raises:
        UnknownEnvironment: Always.
    """
    folder = "" if file.parent == Path() else f", with {file.parent} as the working directory or in PYTHONPATH"
    raise UnknownEnvironment(f"{named}: name the module without .py; write {file.stem}:{name}{folder}")
