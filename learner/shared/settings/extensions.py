"""Finds trainers, companions, reward signals and parts of networks that users add: ``module:callable``, or an entry point.

A package declares an entry point in one of these groups. Its target, usually a class, is called to create the object,
and its attribute ``settings_model`` describes its settings. It is imported only if a run file names it, so that
built-in names cost nothing. `check-config` then takes as long as that import: about two seconds for a trainer, whose
module needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_serializer,
)
from rollcast.text import in_one_line

from learner.shared.exits import ExitCode, UserError
from learner.shared.plugins import find
from learner.shared.settings.base import Path, SettingsModel, Value, invalid_as_told

TRAINERS: Final = "rollcast.trainers"
COMPANIONS: Final = "rollcast.companions"
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


class ExtensionBlock(SettingsModel):
    """A block of the run file whose keys name code: that of Rollcast, as fields, or that of users; None means not used.

    Names of users are fields of a model created by `model_for`.
    """

    _setting: ClassVar[str]
    """The setting with this block."""
    _group: ClassVar[str]
    """Group of the entry points of users."""
    _kind: ClassVar[type[SettingsModel]]
    """Base class of the settings below a name."""

    def active(self) -> Mapping[str, Any]:
        """Returns the settings in use by name, in the order of the fields: those of users last, sorted by name."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: settings for name, settings in found.items() if settings is not None}

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """Returns the built-in names and those that installed packages declare."""
        return frozenset(cls.model_fields) | declared(cls._group)

    @classmethod
    def model_for(cls, raw: Mapping[str, Value]) -> type[Self]:
        """Returns the model with the names of users in a map.

        Raises:
            UserError: One cannot be imported or used.
        """
        added: dict[str, Any] = {}
        for name in sorted(set(raw) - set(cls.model_fields)):
            model = settings_model(cls._setting, name, cls._group, cls._kind)
            if model is not None:
                cls._check_name(name)
                added[name] = (Annotated[model, WrapValidator(_named(cls._setting, name))] | None, None)
        return create_model(cls.__name__, __base__=cls, **added) if added else cls

    @classmethod
    def check_code(cls, parent: Mapping[str, Value], path: Path, place: Callable[[Path], str]) -> None:
        """Imports the code of users that the block of a behavior names.

        Args:
            parent: The block of the behavior.
            path: Its path.
            place: Returns where a path is in the run file, for messages.

        Raises:
            UserError: Some cannot be imported or used.
        """
        raw = parent.get(cls._setting)
        for name in sorted(set(raw) - set(cls.model_fields)) if isinstance(raw, dict) else ():
            settings_model(place((*path, cls._setting, name)), name, cls._group, cls._kind)

    @classmethod
    def _check_name(cls, name: str) -> None:
        """Refuses a package's name that would hide an attribute of this block.

        Raises:
            UserError: The name is refused.
        """
        if name.startswith("_") or hasattr(cls, name):
            raise UserError(
                ExitCode.RUN_FILE,
                f"{cls._setting} names {name!r}, which is reserved: the package must declare it (entry point group "
                f"{cls._group}) under a name that Rollcast does not use and that does not begin with _",
            )

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: object) -> object:
        if value is None:
            raise invalid_as_told("is empty; write {} for default settings, or leave the line out")
        return value

    @model_serializer(mode="wrap")
    def _only_active(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {name: settings for name, settings in handler(self).items() if settings is not None}


def _named(setting: str, name: str) -> Callable[[Any, ValidatorFunctionWrapHandler], SettingsModel]:
    """Returns the validator of a user's settings, whose errors are reported with its name."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> SettingsModel:
        def make() -> SettingsModel:
            settings: SettingsModel = handler(value)
            return settings

        return built(setting, name, make)

    return validate
