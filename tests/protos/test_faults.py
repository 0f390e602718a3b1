"""Tests that numbers that must not be trained are found."""

from __future__ import annotations

import numpy as np
import pytest
from rollcast.enums import ColumnRole, SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk, decode_chunk, encode_chunk, find_data_fault

from tests.protos.builders import CARTPOLE, EVERYTHING, full_chunk, put, small_chunk


def fault(chunk: Chunk, spec: BehaviorSpec = EVERYTHING) -> tuple[str, str] | None:
    """Sends the chunk and looks for faults, as a learner does."""
    recurrent = "memory" in chunk.columns
    received = decode_chunk(
        encode_chunk(chunk),
        spec,
        max_bytes=1 << 24,
        memory_size=4 if recurrent else 0,
        memory_stride=2 if recurrent else 0,
    )
    return find_data_fault(received, spec)


@pytest.mark.parametrize("chunk", [small_chunk(EVERYTHING), full_chunk(), Chunk(sequence=1)])
def test_sound_chunks_have_no_fault(chunk: Chunk) -> None:
    """Valid chunks have no fault, also with NaN in info/ and statistics."""
    assert fault(chunk) is None


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("obs/state", "row 1"),
        ("obs/others", "row 1"),
        ("final_obs/state", "segment 1"),
        ("final_obs/others", "segment 1"),
        ("continuous_action", "row 1"),
        ("log_prob", "row 1"),
        ("reward", "row 1"),
        ("group_reward", "row 1"),
        ("dist/logits", "row 1"),
        ("memory", "row 1"),
        ("prev_reward", "segment 1"),
        ("prev_continuous_action", "segment 1"),
        ("episode/return", "episode 1"),
        ("episode/group_return", "episode 1"),
        ("episode/last_reward", "episode 1"),
    ],
)
def test_numbers_that_are_not_finite_are_found(name: str, where: str, number: float) -> None:
    """Non-finite numbers are found in every float column with column and row."""
    chunk = full_chunk()
    values = chunk.columns[name].copy()
    values[1] = number
    chunk.columns[name] = values
    assert fault(chunk) == ("not_finite", f"column {name}, {where}: a value is NaN or infinite")


WIDE = BehaviorSpec("Wide", (ObservationSpec("state", np.dtype(np.float64), (2,)),), ActionSpec(discrete_branches=(2,)))


@pytest.mark.parametrize(("name", "where"), [("obs/state", "row 1"), ("final_obs/state", "segment 1")])
@pytest.mark.parametrize("number", [1e300, -1e39, 3.4028236e38, np.nan, -np.inf])
def test_numbers_that_float32_cannot_hold_are_found(name: str, where: str, number: float) -> None:
    """Float64 values beyond float32 are found."""
    chunk = small_chunk(WIDE)
    values = chunk.columns[name].copy()
    values[1] = number
    chunk.columns[name] = values
    assert fault(chunk, WIDE) == ("not_finite", f"column {name}, {where}: a value is NaN, or infinite in float32")


def test_the_largest_numbers_of_float32_have_no_fault() -> None:
    """The largest float32 is no fault, also in float64 columns."""
    chunk = small_chunk(WIDE)
    chunk.columns["obs/state"] = np.full_like(chunk.columns["obs/state"], 3.4028234e38)
    assert fault(chunk, WIDE) is None


def test_columns_of_plug_ins_may_hold_nan() -> None:
    """Columns of plug-ins may hold NaN."""
    chunk = small_chunk()
    put(chunk, "extra/depth", ColumnRole.STEP, np.full(chunk.rows, np.nan, np.float32))
    assert fault(chunk, CARTPOLE) is None


@pytest.mark.parametrize(
    ("name", "row", "numbers", "detail"),
    [
        ("discrete_action", 4, (2, 0), r"column discrete_action, row 4, axis 0: 2 is not in [0, 2)"),
        ("discrete_action", 0, (0, -1), r"column discrete_action, row 0, axis 1: -1 is not in [0, 3)"),
        ("discrete_action", 1, (0, 2**31 - 1), r"column discrete_action, row 1, axis 1: 2147483647 is not in [0, 3)"),
        ("prev_discrete_action", 1, (-2, 0), r"column prev_discrete_action, segment 1, axis 0: -2 is not in [-1, 2)"),
        ("prev_discrete_action", 1, (0, 3), r"column prev_discrete_action, segment 1, axis 1: 3 is not in [-1, 3)"),
    ],
)
def test_actions_out_of_range_are_found(name: str, row: int, numbers: tuple[int, int], detail: str) -> None:
    """Actions out of range are found; -1 is allowed before the first step."""
    chunk = full_chunk()
    values = chunk.columns[name].copy()
    values[row] = numbers
    chunk.columns[name] = values
    assert fault(chunk) == ("bad_action", detail)


def masked(rows: int, forbidden: tuple[int, ...], row: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Returns a mask `[rows, 5]` of branches (2, 3) that forbids some choices of one row."""
    mask = np.ones((rows, 5), np.uint8)
    mask[row, list(forbidden)] = 0
    return mask


def test_a_forbidden_action_is_found_by_its_place_in_the_mask() -> None:
    """A forbidden action is found by its branch's offset in the mask."""
    chunk = full_chunk()
    chunk.columns["discrete_action"] = np.tile(np.asarray([0, 1], np.int32), (5, 1))
    chunk.columns["action_mask"] = masked(5, (1, 2, 4), 2)
    assert fault(chunk) is None
    chunk.columns["action_mask"] = masked(5, (3,), 2)
    assert fault(chunk) == ("bad_action", "column discrete_action, row 2: the mask forbids the action")


@pytest.mark.parametrize("forbidden", [(0, 1), (2, 3, 4)])
def test_a_branch_without_any_allowed_action_is_found(forbidden: tuple[int, ...]) -> None:
    """A branch without allowed actions is found."""
    chunk = full_chunk()
    chunk.columns["action_mask"] = masked(5, forbidden, 3)
    assert fault(chunk) == ("bad_action", "column action_mask, row 3: a branch has no allowed action")


def test_a_final_mask_may_be_closed_after_a_terminal_state_only() -> None:
    """A final mask may forbid everything only after a terminal step."""
    chunk = full_chunk()
    chunk.columns["final_action_mask"] = masked(2, (0, 1), 1)
    assert fault(chunk) == ("bad_action", "column final_action_mask, segment 1: a branch has no allowed action")
    chunk.columns["end"] = np.asarray([SegmentEnd.CUT, SegmentEnd.TERMINATED], np.uint8)
    assert fault(chunk) is None


@pytest.mark.parametrize(("name", "where"), [("obs/tile", "row 1"), ("final_obs/tile", "segment 1")])
@pytest.mark.parametrize(("number", "axis", "limit"), [(5, 0, 5), (-1, 0, 5), (7, 1, 7)])
def test_categories_out_of_range_are_found(name: str, where: str, number: int, axis: int, limit: int) -> None:
    """Categories out of range are found."""
    chunk = full_chunk()
    values = chunk.columns[name].copy()
    values[1, axis] = number
    chunk.columns[name] = values
    detail = f"column {name}, {where}, axis {axis}: {number} is not in [0, {limit})"
    assert fault(chunk) == ("bad_observation", detail)
