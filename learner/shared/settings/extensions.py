"""Finds trainers, reward signals and parts of networks that users add to the run file: ``module:callable``, or an entry point.

A package declares an entry point in one of these groups. Its target, usually a class, is called to create the object,
and its attribute ``settings_model`` describes its settings. It is imported only if a run file names it, so that
built-in names cost nothing. `check-config` then takes as long as that import: about two seconds for a trainer, whose
module needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from rollcast.text import in_one_line

from learner.shared.exits import ExitCode, UserError
from learner.shared.plugins import find
from learner.shared.settings.base import SettingsModel

TRAINERS: Final = "rollcast.trainers"
REWARD_SIGNALS: Final = "rollcast.reward_signals"
ENCODERS: Final = "rollcast.encoders"
BODIES: Final = "rollcast.bodies"
POLICIES: Final = "rollcast.policies"
SETTINGS_MODEL: Final = "settings_model"

_Model = TypeVar("_Model", bound=SettingsModel)
_Made = TypeVar("_Made")


def declared(group: str) -> frozenset[str]:
    """Returns the names that installed packages declare in a group; imports nothing."""
    return frozenset(point.name for point in entry_points(group=group))


def exists(name: str, group: str) -> bool:
    """Returns whether a name is ``module:callable``, or an entry point of a group; imports nothing."""
    return ":" in name or name in declared(group)


def load(setting: str, name: str, group: str) -> Callable[..., Any]:
    """Imports what a name refers to.

    Args:
        setting: Setting that holds the name, for messages.
        name: ``module:callable``, or an entry point.
        group: Group of the entry point.

    Raises:
        UserError: No package declares it, or it cannot be imported.
    """
    return find(setting, name, group, {})


def settings_model(setting: str, name: str, group: str, kind: type[_Model]) -> type[_Model] | None:
    """Returns the settings model of an extension; None if the name is not ``module:callable``, and no package declares it.

    Args:
        setting: Setting that holds the name, for messages.
        name: ``module:callable``, or an entry point.
        group: Group of the entry point.
        kind: Base class of the model, and the model if the extension has none.

    Raises:
        UserError: The extension cannot be imported, or its settings are of another type or unusable.
    """
    if not exists(name, group):
        return None
    found = load(setting, name, group)
    model = guarded(setting, name, lambda: getattr(found, SETTINGS_MODEL, kind))
    if not (isinstance(model, type) and issubclass(model, kind)):
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r}, whose {SETTINGS_MODEL} is {' '.join(repr(model).split())}: it must be a subclass "
            f"of {kind.__module__}.{kind.__name__}",
        )
    guarded(setting, name, model.model_rebuild)  # resolves annotations
    return model


def guarded(setting: str, name: str, call: Callable[[], _Made]) -> _Made:
    """Calls code of a package's settings, and reports its errors with the name of the package.

    Args:
        setting: Setting that holds the name, for messages.
        name: Name of the entry point.
        call: Function that runs the package's code.

    Raises:
        ValidationError: A value of the run file is invalid.
        UserError: The code raised any other error.
    """
    try:
        return call()
    except (UserError, ValidationError):
        raise
    except BaseException as error:  # see `learner.shared.plugins`
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {name!r}, whose {SETTINGS_MODEL} raises an error: {in_one_line(error)}; its code must be "
            "repaired",
        ) from error


def built(setting: str, name: str, make: Callable[[], _Model]) -> _Model:
    """Builds settings of a package, and checks that they can be serialized.

    Raises:
        ValidationError: A value of the run file is invalid.
        UserError: The package's code raised any other error.
    """
    settings = guarded(setting, name, make)
    guarded(setting, name, lambda: settings.model_dump(mode="json"))
    return settings
