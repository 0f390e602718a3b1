"""Finds faults of data: values that must not be trained on, in columns of the right form."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole, ObservationKind, SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec

NOT_FINITE: Final = "not_finite"
BAD_ACTION: Final = "bad_action"
BAD_OBSERVATION: Final = "bad_observation"

# extra/ belongs to plug-ins, which may use NaN; info/ uses it for "absent"; statistics are only displayed.
_MAY_BE_NOT_FINITE: Final = ("extra/", "info/", "stat/")

# Networks and normalizers use float32, whatever the type on the wire.
_TRAINED_ITEMSIZE: Final = np.dtype(np.float32).itemsize


def find_data_fault(chunk: Chunk, spec: BehaviorSpec) -> tuple[str, str] | None:
    """Finds the first fault of data in a chunk that `decode_chunk` returned.

    Returns:
        Reason (not_finite, bad_action, bad_observation) and detail (which column, which row), or None.
    """
    return _not_finite(chunk) or _bad_action(chunk, spec.action) or _bad_observation(chunk, spec)


def _not_finite(chunk: Chunk) -> tuple[str, str] | None:
    for name, array in chunk.columns.items():
        if array.dtype.kind != "f" or name.startswith(_MAY_BE_NOT_FINITE):
            continue
        finite = np.isfinite(array) if array.itemsize <= _TRAINED_ITEMSIZE else _finite_as_trained(array)
        if not finite.all():
            row = _first_row(~finite)
            why = "is NaN or infinite" if array.itemsize <= _TRAINED_ITEMSIZE else "is NaN, or infinite in float32"
            return NOT_FINITE, f"column {name}, {_where(chunk.roles[name], row)}: a value {why}"
    return None


def _finite_as_trained(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns which values of a wider type stay finite in float32; 1e300, for example, becomes infinite."""
    with np.errstate(over="ignore"):
        finite: NDArray[np.bool_] = np.isfinite(array.astype(np.float32))
    return finite


def _bad_action(chunk: Chunk, action: ActionSpec) -> tuple[str, str] | None:
    """Finds discrete actions out of range or forbidden, and masks that forbid a whole branch."""
    if not action.discrete_branches:
        return None
    branches = np.asarray(action.discrete_branches, np.int32)
    offsets = np.cumsum(branches) - branches
    taken = chunk.columns.get("discrete_action")
    if taken is not None:
        detail = _out_of_range("discrete_action", taken, 0, branches, ColumnRole.STEP)
        if detail:
            return BAD_ACTION, detail
    previous = chunk.columns.get("prev_discrete_action")
    if previous is not None:
        detail = _out_of_range("prev_discrete_action", previous, -1, branches, ColumnRole.SEGMENT)
        if detail:
            return BAD_ACTION, detail
    mask = chunk.columns.get("action_mask")
    if mask is not None and not mask.all():
        closed = np.maximum.reduceat(mask, offsets, axis=1) == 0
        if closed.any():
            return BAD_ACTION, f"column action_mask, row {_first_row(closed)}: a branch has no allowed action"
        if taken is not None:
            forbidden = np.take_along_axis(mask, taken + offsets, axis=1) == 0
            if forbidden.any():
                return BAD_ACTION, f"column discrete_action, row {_first_row(forbidden)}: the mask forbids the action"
    return _closed_final_mask(chunk, offsets)


def _closed_final_mask(chunk: Chunk, offsets: NDArray[np.int32]) -> tuple[str, str] | None:
    """Finds final masks that forbid a whole branch, except after terminal states, where no action follows."""
    mask, end = chunk.columns.get("final_action_mask"), chunk.columns.get("end")
    if mask is None or end is None or mask.all():
        return None
    closed = (np.maximum.reduceat(mask, offsets, axis=1) == 0) & (end != SegmentEnd.TERMINATED)[:, None]
    if closed.any():
        return BAD_ACTION, f"column final_action_mask, segment {_first_row(closed)}: a branch has no allowed action"
    return None


def _bad_observation(chunk: Chunk, spec: BehaviorSpec) -> tuple[str, str] | None:
    """Finds categories out of range, which would index past the end of an embedding."""
    for observation in spec.observations:
        if observation.kind is not ObservationKind.CATEGORICAL:
            continue
        counts = np.asarray(observation.categories, np.int64)
        for name, role in (
            (f"obs/{observation.name}", ColumnRole.STEP),
            (f"final_obs/{observation.name}", ColumnRole.FINAL),
        ):
            array = chunk.columns.get(name)
            if array is not None:
                detail = _out_of_range(name, array, 0, counts, role)
                if detail:
                    return BAD_OBSERVATION, detail
    return None


def _out_of_range(name: str, array: NDArray[Any], lowest: int, counts: NDArray[Any], role: ColumnRole) -> str | None:
    """Finds values of `array` `[rows, n]` outside [lowest, counts)."""
    wrong = (array < lowest) | (array >= counts)
    if not wrong.any():
        return None
    row, axis = (int(index[0]) for index in np.nonzero(wrong))
    return (
        f"column {name}, {_where(role, row)}, axis {axis}: {int(array[row, axis])} is not in "
        f"[{lowest}, {int(counts[axis])})"
    )


def _first_row(wrong: NDArray[np.bool_]) -> int:
    return int(np.nonzero(wrong)[0][0])


def _where(role: ColumnRole, row: int) -> str:
    kind = {ColumnRole.SEGMENT: "segment", ColumnRole.FINAL: "segment", ColumnRole.EPISODE: "episode"}.get(role, "row")
    return f"{kind} {row}"
