"""Checks the form of a chunk. Each check raises `MalformedChunk` with the column, the value and the limit."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rollcast import limits
from rollcast.chunks import Chunk, GameRecord, GameResult
from rollcast.columns import OPEN_PREFIXES, ColumnForm
from rollcast.enums import (
    ActionSource,
    AssignmentRole,
    ColumnRole,
    GroupEnd,
    Purpose,
    SegmentEnd,
    StatAggregation,
    member,
)
from rollcast.errors import MalformedChunk
from rollcast.game_records import record_fault
from rollcast.v1 import trajectory_pb2

_RESULTS: Final = f"-1, 0, 1 and {GameResult.UNKNOWN}"


def check_message(message: trajectory_pb2.Chunk) -> None:
    """Checks everything that needs no column."""
    if message.sequence < 1:
        raise MalformedChunk("sequence is 0; numbering begins at 1")
    if message.segments > message.rows:
        raise MalformedChunk(f"{message.segments} segments in {message.rows} rows; each segment has at least one row")
    if message.rows and not message.segments:
        raise MalformedChunk(f"{message.rows} rows without a segment")
    if message.rows and message.lockstep_round:
        raise MalformedChunk(
            f"{message.rows} rows in the chunk that ends round {message.lockstep_round}; send them in earlier chunks"
        )
    if len(message.columns) > limits.MAX_COLUMNS:
        raise MalformedChunk(f"{len(message.columns)} columns; at most {limits.MAX_COLUMNS} are allowed")
    if len(message.stat_keys) > limits.MAX_STAT_KEYS:
        raise MalformedChunk(f"{len(message.stat_keys)} statistics keys; at most {limits.MAX_STAT_KEYS} are allowed")
    for key in message.stat_keys:
        if not 1 <= len(key) <= limits.MAX_STAT_KEY_LENGTH or not key.isprintable():
            raise MalformedChunk(
                f"statistics key {key[:80]!r} must be 1 to {limits.MAX_STAT_KEY_LENGTH} printable characters"
            )
    if len(message.opponents) > limits.MAX_OPPONENTS:
        raise MalformedChunk(f"{len(message.opponents)} opponents; at most {limits.MAX_OPPONENTS} are allowed")
    for name in message.opponents:
        if not 1 <= len(name) <= 2 * limits.MAX_BEHAVIOR_NAME_LENGTH or not name.isprintable():
            raise MalformedChunk(f"opponent {name[:80]!r} is not the name of a behavior")


def decode_discarded(message: trajectory_pb2.Chunk) -> dict[str, int]:
    """Returns the discarded steps by reason."""
    if len(message.discarded) > limits.MAX_REASONS:
        raise MalformedChunk(f"{len(message.discarded)} discard reasons; at most {limits.MAX_REASONS} are allowed")
    counts: dict[str, int] = {}
    for entry in message.discarded:
        reason = entry.reason
        if not limits.REASON_PATTERN.fullmatch(reason) or reason in counts:
            raise MalformedChunk(f"discard reason {reason[:80]!r} is not a lower-case word, or appears twice")
        counts[reason] = entry.steps
    if sum(counts.values()) > limits.MAX_STEPS:
        raise MalformedChunk(f"{sum(counts.values())} discarded steps; at most {limits.MAX_STEPS} are allowed")
    return counts


def decode_game_record(message: trajectory_pb2.Chunk) -> GameRecord | None:
    """Returns the game record of a chunk; None if it has none."""
    if not message.HasField("game_record"):
        return None
    found = message.game_record
    if not found.match:
        raise MalformedChunk("the game record names no match")
    result = member(GameResult, found.result)
    if result is None:
        raise MalformedChunk(f"game record: result {found.result} is unknown; {_RESULTS} are allowed")
    if fault := record_fault(found.game, found.moves):
        raise MalformedChunk(f"game record: {fault}")
    moves = found.moves.split("\n") if found.moves else []
    return GameRecord(found.match, found.game, found.first_team, result, tuple(moves))


def check_form(name: str, role: ColumnRole, array: NDArray[Any], form: ColumnForm | None) -> None:
    """Checks role, element type and trailing shape."""
    if array.ndim < 1:
        raise MalformedChunk(f"column {name}: a scalar has no row axis")
    if form is None:
        prefix, slash, _ = name.partition("/")
        open_form = OPEN_PREFIXES.get(prefix + slash)
        if open_form is None:
            raise MalformedChunk(f"column {name} is unknown to this behavior; put your own columns under extra/")
        only_role, only_dtype = open_form
        if only_role is not None and role is not only_role:
            raise MalformedChunk(f"column {name}: role {role.name}, but it must be {only_role.name}")
        if only_dtype is not None and array.dtype != only_dtype:
            raise MalformedChunk(f"column {name}: type {array.dtype}, but it must be {only_dtype}")
        if prefix == "info" and array.ndim != 1:
            raise MalformedChunk(f"column {name}: shape {list(array.shape)}, but it must hold one number per episode")
        return
    if role is not form.role:
        raise MalformedChunk(f"column {name}: role {role.name}, but it must be {form.role.name}")
    if array.dtype != form.dtype:
        raise MalformedChunk(f"column {name}: type {array.dtype}, but it must be {form.dtype}")
    if array.shape[1:] != form.trailing:
        raise MalformedChunk(
            f"column {name}: rows of shape {list(array.shape[1:])}, but {list(form.trailing)} is declared"
        )


def check_rows(chunk: Chunk, memory_stride: int) -> None:
    """Checks the number of rows of each column, by role."""
    counts = {
        ColumnRole.STEP: chunk.rows,
        ColumnRole.SEGMENT: chunk.segments,
        ColumnRole.FINAL: chunk.segments,
        ColumnRole.EPISODE: chunk.episodes,
        ColumnRole.MEMORY: _memory_rows(chunk, memory_stride),
    }
    for name, role in chunk.roles.items():
        rows = len(chunk.columns[name])
        if role is ColumnRole.STAT:
            # The number of statistics records is not announced: the first column sets it.
            counts.setdefault(role, rows)
        if rows != counts[role]:
            raise MalformedChunk(
                f"column {name}: {rows} rows, but {role.name} columns of this chunk have {counts[role]}"
            )


def _memory_rows(chunk: Chunk, memory_stride: int) -> int:
    """Checks `length` and returns the number of started blocks of memory_stride rows."""
    length = chunk.columns.get("length")
    if length is None:
        return 0  # a chunk without segments
    if len(length) != chunk.segments:
        raise MalformedChunk(f"column length: {len(length)} rows, but the chunk has {chunk.segments} segments")
    lengths = length.astype(np.int64)
    if chunk.segments and int(lengths.min()) < 1:
        raise MalformedChunk("column length: a segment has no rows; each needs at least one")
    if int(lengths.sum()) != chunk.rows:
        raise MalformedChunk(
            f"column length: the lengths add up to {int(lengths.sum())}, but the chunk has {chunk.rows} rows"
        )
    return int(-(-lengths // memory_stride).sum()) if memory_stride > 0 else 0


def check_required(chunk: Chunk, forms: Mapping[str, ColumnForm]) -> None:
    """Checks that the required columns exist for the roles that have rows."""
    present = {
        ColumnRole.STEP: chunk.rows > 0,
        ColumnRole.SEGMENT: chunk.segments > 0,
        ColumnRole.FINAL: chunk.segments > 0,
        ColumnRole.MEMORY: chunk.segments > 0,
        ColumnRole.EPISODE: chunk.episodes > 0,
        ColumnRole.STAT: ColumnRole.STAT in chunk.roles.values(),
    }
    for name, form in forms.items():
        if form.required and present[form.role] and name not in chunk.columns:
            raise MalformedChunk(f"column {name} is missing")
    if chunk.segments and "log_prob" not in chunk.columns:
        purpose = chunk.columns.get("purpose")
        if purpose is None or bool((purpose <= Purpose.TRAIN).any()):
            raise MalformedChunk("column log_prob is missing; segments of purpose TRAIN need it")


def check_ranges(chunk: Chunk) -> None:
    """Checks values that index or name something; `find_data_fault` checks the numbers of the experience."""
    columns = chunk.columns
    _check_range(columns, "end", SegmentEnd.CUT, SegmentEnd.TRUNCATED)
    _check_range(columns, "episode/end", SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED)
    _check_range(columns, "action_mask", 0, 1)
    _check_range(columns, "final_action_mask", 0, 1)
    _check_range(columns, "stat/key", 0, len(chunk.stat_keys) - 1)
    _check_range(columns, "episode/opponent", -1, len(chunk.opponents) - 1)
    _check_result(columns.get("episode/result"))
    for name, highest in (
        ("group_end", GroupEnd.TRUNCATED),
        ("purpose", Purpose.DEMO),
        ("action_source", ActionSource.SCRIPT),
        ("episode/purpose", Purpose.DEMO),
        ("episode/role", AssignmentRole.OPPONENT),
        ("episode/group_end", GroupEnd.TRUNCATED),
        ("stat/aggregation", StatAggregation.HISTOGRAM),
    ):
        _check_range(columns, name, 0, highest)
        array = columns.get(name)
        if array is not None and not array.all():
            # In each of these enums 0 means the same as 1.
            columns[name] = np.maximum(array, 1)
    _check_group_steps(chunk)


def _check_group_steps(chunk: Chunk) -> None:
    """Checks that `group_step` grows from row to row of each segment of an agent in a group."""
    steps, groups = chunk.columns.get("group_step"), chunk.columns.get("group")
    if steps is None or groups is None or not chunk.segments:
        return
    lengths = chunk.columns["length"].astype(np.int64)
    stays = np.diff(steps.astype(np.int64)) <= 0
    stays[np.cumsum(lengths)[:-1] - 1] = False
    stays &= np.repeat(groups != 0, lengths)[1:]
    if stays.any():
        row = int(stays.argmax())
        raise MalformedChunk(
            f"column group_step: {int(steps[row + 1])} after {int(steps[row])} in row {row + 1}; it must grow within a "
            "segment"
        )


def _check_result(results: NDArray[Any] | None) -> None:
    if results is None:
        return
    unknown = results[~np.isin(results, [*GameResult])]
    if len(unknown):
        raise MalformedChunk(f"column episode/result: {unknown[0]} is out of range; {_RESULTS} are allowed")


def _check_range(columns: Mapping[str, NDArray[Any]], name: str, lowest: int, highest: int) -> None:
    array = columns.get(name)
    if array is None or not array.size:
        return
    low, high = int(array.min()), int(array.max())
    if low < lowest or high > highest:
        raise MalformedChunk(
            f"column {name}: {low if low < lowest else high} is out of range; {lowest} to {highest} are allowed"
        )
