"""The base of all settings: immutable, strict about keys, lenient about the notation of numbers.

ML-Agents reads its files with PyYAML, for which ``3e-4`` is text, and then converts each value to the type of its
field: numbers from text, whole numbers by dropping a fraction. The types here read the same notations, and refuse values
without a sensible conversion (a boolean for a number, an infinite one, a fraction of a step). What a run file may have in
ML-Agents' own keys, `learner.shared.settings.lenient` converts before, with a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
"""A value in a YAML file without special tags."""

Tree: TypeAlias = "dict[str, Value]"
"""A map of a run file."""

Path: TypeAlias = tuple[str, ...]
"""The place of a value in a run file, as a tuple of keys."""


LIVE: Final = "live"
"""Metadata of a field whose value may change while a run trains."""
_T = TypeVar("_T")
Live: TypeAlias = Annotated[_T, LIVE]
"""The type of such a field: ``rollcast set`` changes it, and trainers use its value from the next update on."""


class SettingsModel(BaseModel):
    """A block of the run file: immutable; an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    ignored_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of old files that are dropped, with the warning for each."""

    removed_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of old files that are errors, with the remedy for each."""

    warned_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that are read with a warning."""

    @classmethod
    def model_for(cls, raw: Mapping[str, Value]) -> type[SettingsModel]:
        """Returns the model that validates a map in this place; a block with several forms overrides it."""
        del raw
        return cls

    @classmethod
    def hint_for(cls, key: str) -> str | None:
        """Returns the block to which an unknown key of this block belongs; None if there is none."""
        del key
        return None

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """Returns the keys that may be written here, including those that installed packages add."""
        return frozenset(cls.model_fields)

    @classmethod
    def is_live(cls, key: str) -> bool:
        """Returns whether a field is `Live`; a subclass that repeats a field only changes its default."""
        models = (model for model in cls.__mro__ if issubclass(model, SettingsModel))
        return any(LIVE in model.model_fields[key].metadata for model in models if key in model.model_fields)

    @classmethod
    def annotation_for(cls, key: str, raw: Mapping[str, Value]) -> object:
        """Returns the type of a field, which in some blocks depends on its neighbours in ``raw``."""
        del raw
        return cls.model_fields[key].annotation


class LenientSettings(SettingsModel):
    """A block in which ML-Agents silently ignores unknown keys; here they cause a warning."""

    model_config = ConfigDict(extra="ignore")


def invalid(message: str) -> PydanticCustomError:
    """Returns the error to raise in a validator; the display adds the value unless it is a secret."""
    return PydanticCustomError("invalid_setting", "{text}", {"text": message})


def invalid_as_told(message: str) -> PydanticCustomError:
    """Returns the error to raise if the message itself names the values, as in rules between two settings."""
    return PydanticCustomError("invalid_as_told", "{text}", {"text": message})


def to_real(value: object) -> object:
    """Reads a number from text as ML-Agents does; booleans and non-finite numbers are refused.

    Raises:
        PydanticCustomError: The value is not a finite number.
    """
    number: float | int | None = None
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    if number is None or not math.isfinite(number):
        raise invalid("must be a finite number")
    return number


def to_whole(value: object) -> object:
    """Reads a whole number in any notation (``5e5`` and ``"5e5"`` are 500000).

    Raises:
        PydanticCustomError: The value is not a finite number, has a fraction, or needs more than 64 bits.
    """
    number: object
    try:
        number = int(value) if isinstance(value, str) else to_real(value)
    except ValueError:
        number = to_real(value)
    if isinstance(number, int | float) and (abs(number) >= 2**63 or number != int(number)):
        raise invalid("must be a whole number" if abs(number) < 2**63 else "must be a whole number of at most 64 bits")
    return int(number) if isinstance(number, int | float) else number


def to_real_or_auto(value: object) -> object:
    """Reads a number from text, or the word auto.

    Raises:
        PydanticCustomError: The value is neither.
    """
    try:
        return value if value == "auto" else to_real(value)
    except PydanticCustomError:
        raise invalid("must be auto or a finite number") from None


def to_positive_or_auto(value: object) -> object:
    """Reads a number above zero from text, or the word auto.

    Raises:
        PydanticCustomError: The value is neither.
    """
    number = to_real_or_auto(value)
    if isinstance(number, int | float) and number <= 0:
        raise invalid("must be auto or a number above 0")
    return number


_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def to_bytes(value: object) -> object:
    """Reads a size: a whole number of bytes, or text with a unit such as ``256 MiB``.

    Raises:
        PydanticCustomError: The value is neither.
    """
    if not isinstance(value, str):
        return to_whole(value)
    text = value.strip()
    digits = len(text) - len(text.lstrip("0123456789.eE+-_"))
    unit = _UNITS.get(text[digits:].strip().upper())
    try:
        number = float(text[:digits]) * (unit or math.nan)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (unit == 1 and number != int(number)):
        raise invalid("must be a whole number of bytes or a size such as '256 MiB'")
    return int(number)


Real = Annotated[float, BeforeValidator(to_real)]
"""A finite number."""

PositiveReal = Annotated[Real, Field(gt=0)]
"""A finite number above zero."""

NonNegativeReal = Annotated[Real, Field(ge=0)]
"""A finite number that is not negative."""

Fraction = Annotated[Real, Field(ge=0, le=1)]
"""A number from 0 to 1."""

RealOrAuto = Annotated[Literal["auto"] | float, BeforeValidator(to_real_or_auto)]
"""A finite number, or auto."""

PositiveRealOrAuto = Annotated[Literal["auto"] | Annotated[float, Field(gt=0)], BeforeValidator(to_positive_or_auto)]
"""A finite number above zero, or auto."""

Whole = Annotated[int, BeforeValidator(to_whole)]
"""A whole number."""

PositiveWhole = Annotated[Whole, Field(ge=1)]
"""A whole number of at least 1."""

NonNegativeWhole = Annotated[Whole, Field(ge=0)]
"""A whole number of at least 0."""

PositiveBytes = Annotated[int, BeforeValidator(to_bytes), Field(ge=1)]
"""A size in bytes; may have a unit such as MiB."""

Schedule = Literal["linear", "constant", "cosine"]
"""Change of a value over ``max_steps``."""
