"""The columns of trajectory.proto: role, type and trailing shape of each, for one behavior."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from rollcast.enums import ColumnRole
from rollcast.specs import BehaviorSpec

# Prefixes for a sender's own names: in one role and of one type, or (extra) in every role.
OPEN_PREFIXES: Final[Mapping[str, tuple[ColumnRole | None, np.dtype[Any] | None]]] = MappingProxyType(
    {
        "extra/": (None, None),
        "dist/": (ColumnRole.STEP, np.dtype("<f4")),
        "info/": (ColumnRole.EPISODE, np.dtype("<f4")),
    }
)

_I8: Final = np.dtype(np.int8)
_U8: Final = np.dtype(np.uint8)
_U32: Final = np.dtype("<u4")
_U64: Final = np.dtype("<u8")
_I32: Final = np.dtype("<i4")
_F32: Final = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """The required form of a column.

    Attributes:
        role: Meaning of its rows.
        dtype: Element type.
        trailing: Shape after the row axis.
        required: Whether a chunk with rows of this role must contain it.
    """

    role: ColumnRole
    dtype: np.dtype[Any]
    trailing: tuple[int, ...] = ()
    required: bool = False


@lru_cache(maxsize=256)
def column_forms(spec: BehaviorSpec, memory_size: int) -> Mapping[str, ColumnForm]:
    """Returns the named columns of a behavior.

    Columns of continuous actions, branches, masks and memory exist only if the behavior has such a part; otherwise they
    are refused. `log_prob` is not marked required, because that depends on the purpose of the segments.

    Args:
        spec: The behavior's spec.
        memory_size: Numbers of memory per agent; 0 = none.
    """
    forms = {**_step_forms(spec), **_segment_forms(spec), **_final_forms(spec), **_EPISODE, **_STAT}
    if memory_size:
        forms["memory"] = ColumnForm(ColumnRole.MEMORY, _F32, (memory_size,), required=True)
    return MappingProxyType(forms)


def _step_forms(spec: BehaviorSpec) -> dict[str, ColumnForm]:
    step = ColumnRole.STEP
    forms = {
        f"obs/{observation.name}": ColumnForm(step, observation.dtype, observation.shape, required=True)
        for observation in spec.observations
    }
    forms["log_prob"] = ColumnForm(step, _F32, (spec.action.factors,))
    forms["reward"] = ColumnForm(step, _F32, required=True)
    forms["group_reward"] = ColumnForm(step, _F32)
    forms["version_offset"] = ColumnForm(step, _U32)
    forms["group_step"] = ColumnForm(step, _I32)
    forms["action_source"] = ColumnForm(step, _U8)
    if spec.action.continuous_size:
        forms["continuous_action"] = ColumnForm(step, _F32, (spec.action.continuous_size,), required=True)
    if spec.action.discrete_branches:
        branches = len(spec.action.discrete_branches)
        forms["discrete_action"] = ColumnForm(step, _I32, (branches,), required=True)
        forms["action_mask"] = ColumnForm(step, _U8, (spec.action.mask_size,))
    return forms


def _segment_forms(spec: BehaviorSpec) -> dict[str, ColumnForm]:
    segment = ColumnRole.SEGMENT
    forms = {
        "length": ColumnForm(segment, _U32, required=True),
        "end": ColumnForm(segment, _U8, required=True),
        "env": ColumnForm(segment, _U32, required=True),
        "agent": ColumnForm(segment, _U64, required=True),
        "episode": ColumnForm(segment, _U64, required=True),
        "first_step": ColumnForm(segment, _U32, required=True),
        "group": ColumnForm(segment, _U64),
        "group_episode": ColumnForm(segment, _U64),
        "group_end": ColumnForm(segment, _U8),
        "assignment": ColumnForm(segment, _U64),
        "purpose": ColumnForm(segment, _U8),
        "prev_reward": ColumnForm(segment, _F32),
    }
    if spec.action.continuous_size:
        forms["prev_continuous_action"] = ColumnForm(segment, _F32, (spec.action.continuous_size,))
    if spec.action.discrete_branches:
        forms["prev_discrete_action"] = ColumnForm(segment, _I32, (len(spec.action.discrete_branches),))
    return forms


def _final_forms(spec: BehaviorSpec) -> dict[str, ColumnForm]:
    final = ColumnRole.FINAL
    forms = {
        f"final_obs/{observation.name}": ColumnForm(final, observation.dtype, observation.shape, required=True)
        for observation in spec.observations
    }
    if spec.action.discrete_branches:
        forms["final_action_mask"] = ColumnForm(final, _U8, (spec.action.mask_size,))
    return forms


_EPISODE: Final[Mapping[str, ColumnForm]] = MappingProxyType(
    {
        f"episode/{name}": ColumnForm(ColumnRole.EPISODE, dtype, required=required)
        for name, dtype, required in (
            ("agent", _U64, True),
            ("env", _U32, True),
            ("episode", _U64, True),
            ("return", _F32, True),
            ("group_return", _F32, False),
            ("length", _U32, True),
            ("end", _U8, True),
            ("last_reward", _F32, False),
            ("last_group_reward", _F32, False),
            ("first_version", _U64, False),
            ("last_version", _U64, False),
            ("settings_revision", _U64, False),
            ("assignment", _U64, False),
            ("purpose", _U8, False),
            ("team", _I32, False),
            ("opponent", _I32, False),
            ("opponent_generation", _U64, False),
            ("opponent_version", _U64, False),
            ("match", _U64, False),
            ("role", _U8, False),
            ("result", _I8, False),
            ("group", _U64, False),
            ("group_episode", _U64, False),
            ("group_end", _U8, False),
            ("seed", _U64, False),
        )
    }
)

_STAT: Final[Mapping[str, ColumnForm]] = MappingProxyType(
    {
        f"stat/{name}": ColumnForm(ColumnRole.STAT, dtype, required=True)
        for name, dtype in (("key", _U32), ("aggregation", _U8), ("env", _U32), ("value", _F32))
    }
)
