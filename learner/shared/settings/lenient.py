"""Reads what ML-Agents accepts: the values of its keys that make no sense here count as the nearest ones that do.

ML-Agents converts a value with the type of its field (``int(value)``, ``bool(value)``, ``str(value)``) and checks few
ranges, so that files in use have ``max_steps: 5.0e22``, ``gamma: 3.0`` and ``normalize: 2``. They train there, and do
here, with a warning. Keys that only Rollcast has are strict.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Final, get_args, get_origin

from pydantic.fields import FieldInfo

from learner.shared.settings.base import Value
from learner.shared.settings.slots import Slot

STOCK_KEYS: Final = frozenset(
    [
        "batch_size",
        "buffer_size",
        "learning_rate",
        "learning_rate_schedule",
        "beta",
        "beta_schedule",
        "epsilon",
        "epsilon_schedule",
        "lambd",
        "num_epoch",
        "shared_critic",
        "buffer_init_steps",
        "init_entcoef",
        "save_replay_buffer",
        "tau",
        "steps_per_update",
        "reward_signal_steps_per_update",
        "normalize",
        "hidden_units",
        "num_layers",
        "vis_encode_type",
        "goal_conditioning_type",
        "deterministic",
        "sequence_length",
        "memory_size",
        "gamma",
        "strength",
        "encoding_size",
        "use_actions",
        "use_vail",
        "demo_path",
        "steps",
        "samples_per_update",
        "save_steps",
        "team_change",
        "swap_steps",
        "window",
        "play_against_latest_model_ratio",
        "initial_elo",
        "init_path",
        "keep_checkpoints",
        "even_checkpoints",
        "max_steps",
        "checkpoint_interval",
        "time_horizon",
        "summary_freq",
        "threaded",
        "env_path",
        "env_args",
        "base_port",
        "num_envs",
        "num_areas",
        "timeout_wait",
        "seed",
        "max_lifetime_restarts",
        "restarts_rate_limit_n",
        "restarts_rate_limit_period_s",
        "width",
        "height",
        "quality_level",
        "time_scale",
        "target_frame_rate",
        "capture_frame_rate",
        "no_graphics",
        "no_graphics_monitor",
        "run_id",
        "initialize_from",
        "load_model",
        "resume",
        "force",
        "train_model",
        "inference",
        "results_dir",
        "device",
        "debug",
        "min_value",
        "max_value",
        "mean",
        "st_dev",
        "value",
        "min_lesson_length",
        "signal_smoothing",
        "threshold",
        "require_reset",
        "name",
        "behavior",
    ]
)
"""Keys with single values that ML-Agents has."""

_NONE_BELOW: Final = frozenset({"max_lifetime_restarts", "restarts_rate_limit_n"})
"""-1 is no limit; ML-Agents takes any other negative number for none at all."""
_REFUSED_BELOW: Final = frozenset({"num_areas", "memory_size"})
"""ML-Agents refuses smaller numbers of these too."""
_USUAL: Final[Mapping[str, tuple[float, float, str]]] = MappingProxyType(
    {
        "gamma": (0, 1, "values grow without bound"),
        "lambd": (0, 1, "advantages grow without bound"),
        "beta": (0, math.inf, "the policy is rewarded for certainty"),
    }
)
"""Numbers that train as they are, although they hardly do what was meant: least, largest, and what they do."""
_WORDS: Final = frozenset({"true", "yes", "on", "t", "y", "1", "false", "no", "off", "f", "n", "0"})
_LARGEST_WHOLE: Final = 2**63 - 1
_MOST_SHOWN: Final = 60


def as_in_mlagents(key: str, field: FieldInfo, slot: Slot, value: Value) -> tuple[Value, str | None]:
    """Returns the value that counts, and what to tell of it; None if it counts as it is.

    A value that ML-Agents refuses too is returned unchanged.

    Args:
        key: One of `STOCK_KEYS`.
        field: Its field.
        slot: The field's place.
        value: The written value.
    """
    if slot.kind == "list":
        return _as_list(value)
    if slot.kind != "leaf" or (value is None and slot.nullable):
        return value, None
    if str in slot.types:
        return _as_text(value)
    if bool in slot.types:
        return _as_flag(value)
    return _as_number(key, field, value, whole=int in slot.types) if {int, float} & {*slot.types} else (value, None)


def _as_text(value: Value) -> tuple[Value, str | None]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value, None
    return str(value), f"is read as the text {_shown(str(value))}"


def _as_list(value: Value) -> tuple[Value, str | None]:
    if isinstance(value, str):
        return list(value.split()), "is text, not a list: its words are taken"  # ML-Agents takes its letters
    if isinstance(value, dict):
        return list(value), "is a map, not a list: its keys are taken"
    if isinstance(value, list) and not all(isinstance(item, str | int | float) for item in value):
        return [item if isinstance(item, str | int | float) else str(item) for item in value], "is read as texts"
    return value, None


def _as_flag(value: Value) -> tuple[Value, str | None]:
    if isinstance(value, bool) or value in (0, 1) or (isinstance(value, str) and value.lower() in {*_WORDS, "auto"}):
        return value, None
    return bool(value), f"is {_shown(value)}, neither true nor false: it counts as {str(bool(value)).lower()}"


def _as_number(key: str, field: FieldInfo, value: Value, *, whole: bool) -> tuple[Value, str | None]:
    number = _number(value)
    if number is None or (whole and not math.isfinite(number)):
        return value, None
    told = f"is {_shown(value)}"
    if math.isnan(number):
        default: Value = field.get_default(call_default_factory=True, validated_data={})
        return (value, None) if default is None else (default, f"{told}: the default counts, {default:g}")
    nearest = _nearest(key, field, number, whole=whole)
    if isinstance(value, bool):
        counts = int(nearest) if whole else nearest
        return counts, f"{told}: it counts as {counts:g}"
    if nearest != (math.trunc(number) if whole else number):
        return nearest, f"{told}, which is not possible here: it counts as {nearest!r}"
    if whole:
        is_cut = isinstance(number, float) and number != nearest
        return (nearest, f"{told}: the fraction is dropped") if is_cut else (value, None)
    least, most, effect = _USUAL.get(key, (-math.inf, math.inf, ""))
    return value, None if least <= number <= most else f"{told}, outside {least:g} to {most:g}: {effect}"


def _nearest(key: str, field: FieldInfo, number: float, *, whole: bool) -> float | int:
    """Returns the nearest possible number; whole ones without their fraction."""
    nearest: float | int = max(-sys.float_info.max, min(sys.float_info.max, number))
    if whole:
        nearest = max(-_LARGEST_WHOLE, min(_LARGEST_WHOLE, int(nearest)))
    for compare, limit in _limits(field):
        if compare is operator.ge and key in _REFUSED_BELOW:
            continue
        if not compare(nearest, limit):
            nearest = 0 if key in _NONE_BELOW else limit
    return nearest


def _shown(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _number(value: Value) -> float | int | None:
    if isinstance(value, int | float):
        return int(value) if isinstance(value, bool) else value
    if not isinstance(value, str):
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _limits(field: FieldInfo) -> Iterator[tuple[Callable[[float, float], bool], float]]:
    """Yields the inclusive limits of a field, those inside ``X | None`` too."""
    inner: list[object] = list(field.metadata)
    for option in (field.annotation, *get_args(field.annotation)):
        if get_origin(option) is Annotated:
            inner += get_args(option)[1:]
    for each in inner:
        for limit in each.metadata if isinstance(each, FieldInfo) else (each,):
            for name, compare in (("ge", operator.ge), ("le", operator.le)):
                bound = getattr(limit, name, None)
                if bound is not None:
                    yield compare, bound
