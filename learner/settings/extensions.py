"""What installed packages add to the run file: trainers, reward signals and encoders, by the names of entry points.

A package declares an entry point in one of these groups. What it names, usually a class, is called to make the thing, and says
by an attribute ``settings_model`` which settings it has. It is imported when a run file names it and not before, so that our
own names cost nothing. `check-config` then takes as long as that import: about two seconds for a trainer, whose module needs
torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from learner.common.exits import ExitCode, UserError
from learner.common.plugins import find, in_one_line
from learner.settings.base import SettingsModel

TRAINERS: Final = "rollcast.trainers"
REWARD_SIGNALS: Final = "rollcast.reward_signals"
ENCODERS: Final = "rollcast.encoders"
SETTINGS_MODEL: Final = "settings_model"

_Model = TypeVar("_Model", bound=SettingsModel)
_Made = TypeVar("_Made")


def declared(group: str) -> frozenset[str]:
    """Returns the names that installed packages declare in a group; nothing is imported."""
    return frozenset(point.name for point in entry_points(group=group))


def load(setting: str, name: str, group: str) -> Callable[..., Any]:
    """Imports what a name stands for.

    Args:
        setting: where the name stands, for messages.
        name: of an entry point.
        group: of it.

    Raises:
        UserError: nothing declares it, or it cannot be imported.
    """
    return find(setting, name, group, {})


def settings_model(setting: str, name: str, group: str, kind: type[_Model]) -> type[_Model] | None:
    """Returns the settings of what a package adds; None if no package declares the name.

    Args:
        setting: where the name stands, for messages.
        name: of an entry point.
        group: of it.
        kind: what they extend, and what they are if the package says nothing.

    Raises:
        UserError: it cannot be imported, or its settings are of another kind or cannot be used.
    """
    if name not in declared(group):
        return None
    found = load(setting, name, group)
    model = guarded(setting, name, lambda: getattr(found, SETTINGS_MODEL, kind))
    if not (isinstance(model, type) and issubclass(model, kind)):
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r}, whose {SETTINGS_MODEL} is {' '.join(repr(model).split())}: it must be a subclass "
            f"of {kind.__module__}.{kind.__name__}",
        )
    guarded(setting, name, model.model_rebuild)  # which resolves annotations
    return model


def guarded(setting: str, name: str, call: Callable[[], _Made]) -> _Made:
    """Calls a part of a package's settings, with an error that names the package's own faults.

    Args:
        setting: where the name stands, for messages.
        name: of an entry point.
        call: what runs its code.

    Raises:
        ValidationError: a value of the run file is wrong.
        UserError: it raised anything else.
    """
    try:
        return call()
    except (UserError, ValidationError):
        raise
    except BaseException as error:  # see `learner.common.plugins`
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r}, whose settings ({SETTINGS_MODEL}) fail by themselves: {in_one_line(error)}; the "
            "package must be repaired",
        ) from error


def built(setting: str, name: str, make: Callable[[], _Model]) -> _Model:
    """Builds settings of a package, and tries whether they can be written down.

    Raises:
        ValidationError: a value of the run file is wrong.
        UserError: the package's own code raised anything else.
    """
    settings = guarded(setting, name, make)
    guarded(setting, name, lambda: settings.model_dump(mode="json"))
    return settings
