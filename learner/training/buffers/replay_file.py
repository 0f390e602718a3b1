"""A replay memory in a file: written whole or not at all, and read only if every byte is unchanged.

The file is a zip archive of plain numpy arrays (one per column, uncompressed), the row of each step, the rows of the
first steps of episodes, the row and length of each sequence if the policy has memory, and a header that describes them.
It contains no code: arrays of objects are refused. Checksums are compared. Values that actors may not send are refused
in a file too, and every number used as an index is checked.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import ObservationKind
from torch import Tensor

from learner.shared.files import atomic_file, open_regular
from learner.shared.saved_values import reason
from learner.training.buffers.columns import (
    ACTION_MASK,
    DISCRETE_ACTION,
    MEMORY,
    TERMINATED,
    RingColumn,
    observation_column,
)
from learner.training.buffers.replay import ReplayMemory
from learner.training.buffers.replay_sequences import ReplaySequences

_STEPS_AT_ONCE: Final = 2**16


def check_values(memory: ReplayMemory, column: RingColumn, values: NDArray[Any]) -> None:
    """Checks each value of rows ``[N, *shape]`` of a column.

    Raises:
        ValueError: A value is NaN or infinite, or is no valid flag or category.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"column {column.name} holds NaN or infinite values")
    if column.name in {TERMINATED, ACTION_MASK} and bool((values > 1).any()):
        raise ValueError(f"column {column.name} holds {values.max()}, but must hold only 0 and 1")
    for observation in memory.spec.observations:
        if observation.kind is not ObservationKind.CATEGORICAL or observation_column(observation.name) != column.name:
            continue
        if bool(((values < 0) | (values >= np.asarray(observation.categories))).any()):
            raise ValueError(f"column {column.name} holds categories that this behavior does not have")


def check_actions(memory: ReplayMemory, rows: NDArray[np.int64], used_rows: int) -> None:
    """Checks discrete actions, which later serve as indices, and the masks under which they were drawn.

    Args:
        memory: Memory whose storage holds the read rows first.
        rows: ``[N]``, the row of each step.
        used_rows: Number of rows that were read.

    Raises:
        ValueError: An action does not exist, a mask forbids it, or a mask forbids everything although the episode
            continues.
    """
    discrete = memory.storage.get(DISCRETE_ACTION)
    if discrete is None:
        return
    branches = torch.tensor(memory.branches, device=discrete.device)
    chosen = discrete[:used_rows]
    if bool(((chosen < 0) | (chosen >= branches)).any()):
        raise ValueError("it holds actions that this behavior does not have")
    offsets = branches.cumsum(0) - branches
    masks, terminated = memory.storage[ACTION_MASK], memory.storage[TERMINATED]
    for steps in torch.split(torch.from_numpy(rows).to(discrete.device), _STEPS_AT_ONCE):
        allowed = masks[steps].gather(1, discrete[steps].long() + offsets)
        # After a terminal state a mask may forbid everything.
        following = [part.any(dim=1) for part in torch.split(masks[steps + 1], list(memory.branches), dim=1)]
        is_open = torch.stack(following, dim=1).all(dim=1) | (terminated[steps] == 1)
        if not bool(allowed.all()) or not bool(is_open.all()):
            raise ValueError("it holds action masks that forbid the chosen action or all actions")


FILE_NAME: Final = "last_replay_buffer.npz"
OTHER_FILE_NAME: Final = "last_replay_buffer.other.npz"
"""Files alternate in lock-step, so that the file of a saved state stays until the next state is written."""
_FORMAT: Final = 1
_PAGE: Final = "page.json"
_ROWS: Final = "rows.npy"
_STARTS: Final = "starts.npy"
_SEQUENCES: Final = "sequences.npy"
_PIECE_BYTES: Final = 32 * 2**20
"""Bytes moved between device and disk at a time."""
_MAX_PAGE_BYTES: Final = 2**20


class BadReplay(Exception):  # noqa: N818 - says what the file is
    """The file is not a usable replay memory.

    Args:
        path: The file.
        reason: Text that follows the file name in the message.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


def write_replay(memory: ReplayMemory, path: Path, *, moment: int = 0) -> None:
    """Writes all steps of a memory.

    Args:
        memory: The memory to write.
        path: The file.
        moment: Number that identifies the moment; checked on reading if requested.

    Raises:
        WriteFailed: The file cannot be written; the earlier file is unchanged.
    """
    rows, first, last = memory.live()
    page = {
        "format": _FORMAT,
        "moment": moment,
        "masked": memory.masked,
        "used_rows": last - first,
        "columns": _described(memory),
    }
    with atomic_file(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(_PAGE, json.dumps(page))
        _write_array(archive, _ROWS, (rows.dtype, rows.shape), iter([rows - first]))
        (starts,) = memory.starts.live()
        _write_array(archive, _STARTS, (starts.dtype, starts.shape), iter([starts - first]))
        if memory.sequences is not None:
            begins, lengths, warms = memory.sequences.live()
            columns = (begins - first, lengths, warms) if memory.sequences.burn_in else (begins - first, lengths)
            table = np.stack(columns, axis=1)
            _write_array(archive, _SEQUENCES, (table.dtype, table.shape), iter([table]))
        places = memory.places_between(first, last)
        for index, column in enumerate(memory.columns):
            values = memory.storage[column.name]
            form = (_numpy_type(column.dtype), (last - first, *column.shape))
            _write_array(archive, _member(index), form, _pieces(values, places))


def read_replay(memory: ReplayMemory, path: Path, *, moment: int | None = None) -> None:
    """Reads steps into an empty memory; only the newest ones if it is smaller than the written memory.

    Args:
        memory: The memory to fill.
        path: The file.
        moment: Required moment; None accepts any.

    Raises:
        BadReplay: The file is missing, damaged, or of another behavior, moment or version; the memory stays empty.
    """
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            _read(memory, archive, moment)
    except FileNotFoundError as error:
        raise BadReplay(path, "does not exist") from error
    except OSError as error:
        raise BadReplay(path, f"cannot be read: {error.strerror or error}") from error
    except Exception as error:  # anything that a damaged or foreign file can provoke
        memory.clear()
        raise BadReplay(path, f"is damaged or is not a replay memory of this behavior ({reason(error)})") from error


def _read(memory: ReplayMemory, archive: zipfile.ZipFile, moment: int | None) -> None:
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
        raise ValueError("it is compressed")
    page = _read_page(archive)
    if page.get("format") != _FORMAT:
        raise ValueError(f"its format is {page.get('format')!r}, not {_FORMAT}")
    if moment is not None and page.get("moment") != moment:
        raise ValueError(f"it was written at step {page.get('moment')!r}, not at step {moment}")
    if page.get("columns") != _described(memory):
        raise ValueError(f"its columns are {page.get('columns')}, those of this behavior are {_described(memory)}")
    used_rows, masked = page.get("used_rows"), page.get("masked")
    if type(used_rows) is not int or used_rows < 0 or type(masked) is not bool:
        raise ValueError(f"its page.json has invalid values: used_rows {used_rows!r:.60}, masked {masked!r:.60}")
    if not used_rows:
        return
    rows = _read_rows(archive, used_rows)
    skipped = _surplus(memory, rows, used_rows)
    kept = rows[skipped:]
    first = int(kept[0])
    starts = _read_starts(archive, rows)
    sequences = None if memory.sequences is None else _read_sequences(archive, rows, used_rows, memory.sequences)
    for index, column in enumerate(memory.columns):
        _read_column(memory, archive, _member(index), (used_rows, first), column)
    check_actions(memory, kept - first, used_rows - first)
    if sequences is not None:
        begins, lengths, warms = sequences[:, sequences[0] >= first]
        sequences = np.stack((begins - first, lengths, warms))
    memory.restore(
        kept - first,
        used_rows - first,
        masked=masked,
        starts=starts[starts >= first] - first,
        sequences=None if sequences is None else tuple(sequences),
    )


def _surplus(memory: ReplayMemory, rows: NDArray[np.int64], used_rows: int) -> int:
    """Returns the number of oldest steps that do not fit."""
    steps = max(0, len(rows) - memory.size.capacity_steps)
    over = used_rows - memory.size.capacity_rows
    return max(steps, int(np.searchsorted(rows, over)) if over > 0 else 0)


def _read_page(archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo(_PAGE).file_size > _MAX_PAGE_BYTES:
        raise ValueError("its page.json is too long")
    page = json.loads(archive.read(_PAGE))
    if not isinstance(page, dict):
        raise ValueError("its page.json is not an object")  # noqa: TRY004 - it is a fault of the file
    return page


def _read_rows(archive: zipfile.ZipFile, used_rows: int) -> NDArray[np.int64]:
    with archive.open(_ROWS) as stream:
        shape = _read_header(stream, np.dtype(np.int64))
        if len(shape) != 1 or not 0 < shape[0] <= used_rows or archive.getinfo(_ROWS).file_size < 8 * shape[0]:
            raise ValueError(f"its table of rows has the invalid shape {shape}")
        rows = np.frombuffer(_read_exactly(stream, 8 * shape[0]), np.int64)
        _read_end(stream)
    if not bool((np.diff(rows) > 0).all()):
        raise ValueError("its table of rows is not in ascending order")
    if rows[0] != 0 or rows[-1] + 2 != used_rows:  # otherwise `_surplus` might find that no step fits
        raise ValueError(f"its table of rows spans {rows[0]} to {rows[-1]}, which does not match {used_rows} rows")
    return rows


def _read_starts(archive: zipfile.ZipFile, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Reads the rows of the first steps of episodes."""
    with archive.open(_STARTS) as stream:
        shape = _read_header(stream, np.dtype(np.int64))
        if len(shape) != 1 or not 0 <= shape[0] <= len(rows):
            raise ValueError(f"its table of episodes has the invalid shape {shape}")
        starts = np.frombuffer(_read_exactly(stream, 8 * shape[0]), np.int64)
        _read_end(stream)
    if not bool((np.diff(starts) > 0).all()) or not bool(np.isin(starts, rows).all()):
        raise ValueError("its table of episodes does not match its steps")
    return starts


def _read_sequences(
    archive: zipfile.ZipFile, rows: NDArray[np.int64], used_rows: int, kind: ReplaySequences
) -> NDArray[np.int64]:
    """Reads the numbers of the sequences ``[3, Q]``: contiguous steps, each trained in one sequence only."""
    width = 3 if kind.burn_in else 2
    with archive.open(_SEQUENCES) as stream:
        shape = _read_header(stream, np.dtype(np.int64))
        if len(shape) != 2 or shape[1] != width or not 0 <= shape[0] <= len(rows):
            raise ValueError(f"its table of sequences has the invalid shape {shape}, with burn_in {kind.burn_in}")
        columns = np.frombuffer(_read_exactly(stream, 8 * width * shape[0]), np.int64).reshape(shape).T
        _read_end(stream)
    starts, lengths, warms = columns if width == 3 else (*columns, np.zeros_like(columns[0]))
    if not bool(np.isin(warms, (0, kind.burn_in)).all()):
        raise ValueError(f"its table of sequences was written with a burn_in other than {kind.burn_in}")
    longest = kind.stride + kind.burn_in - warms
    if bool(((lengths < 1) | (lengths > longest) | (starts < 0) | (starts >= used_rows - warms - lengths)).any()):
        raise ValueError(
            f"its table of sequences has a sequence that is not 1 to {kind.stride} steps long or lies outside the steps"
        )
    steps_before = np.searchsorted(rows, np.stack((starts, starts + warms + lengths)))
    are_steps = bool((steps_before[1] - steps_before[0] == warms + lengths).all())
    if not are_steps or bool((np.diff(starts + warms) < lengths[:-1]).any()) or bool((np.diff(starts) < 1).any()):
        raise ValueError("its table of sequences does not match its steps")
    return np.stack((starts, lengths, warms))


def _read_column(
    memory: ReplayMemory, archive: zipfile.ZipFile, name: str, span: tuple[int, int], column: RingColumn
) -> None:
    """Reads the rows of a column from the second number of ``span`` on; the first is the number of rows."""
    target = memory.storage[column.name]
    used_rows, first = span
    kind = _numpy_type(column.dtype)
    row_bytes = column.row_bytes
    with archive.open(name) as stream:
        shape = _read_header(stream, kind)
        if shape != (used_rows, *column.shape):
            raise ValueError(f"column {column.name} has the invalid shape {shape}")
        at_once = max(1, _PIECE_BYTES // max(1, row_bytes))
        for begin in range(0, used_rows, at_once):
            end = min(used_rows, begin + at_once)
            data = _read_exactly(stream, (end - begin) * row_bytes)
            if end <= first:
                continue
            piece = np.frombuffer(data, kind).reshape(end - begin, *column.shape)[max(0, first - begin) :]
            check_values(memory, column, piece)
            place = max(begin, first) - first
            target[place : place + len(piece)].copy_(torch.from_numpy(piece.copy()))
        _read_end(stream)


def _described(memory: ReplayMemory) -> list[list[Any]]:
    found = []
    for column in memory.columns:
        # The stride of the run file decides where actors record memories.
        strides = [] if column.name != MEMORY else [column.stride]
        found.append([column.name, _numpy_type(column.dtype).str, list(column.shape), *strides])
    return found


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _member(index: int) -> str:
    return f"column_{index}.npy"


def _pieces(values: Tensor, places: list[slice]) -> Iterator[NDArray[Any]]:
    """Yields rows in pieces that fit into host memory."""
    row_bytes = math.prod(values.shape[1:]) * values.element_size()
    at_once = max(1, _PIECE_BYTES // max(1, row_bytes))
    for place in places:
        for piece in torch.split(values[place], at_once):
            yield piece.cpu().numpy()


def _write_array(
    archive: zipfile.ZipFile, name: str, form: tuple[np.dtype[Any], tuple[int, ...]], pieces: Iterator[NDArray[Any]]
) -> None:
    kind, shape = form
    with archive.open(name, "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": kind.str, "fortran_order": False, "shape": shape})
        for piece in pieces:
            stream.write(np.ascontiguousarray(piece).data)


def _read_header(stream: IO[bytes], kind: np.dtype[Any]) -> tuple[int, ...]:
    """Reads the header of an array; returns its shape."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array has an unsupported format version")
    shape, fortran_order, found = np.lib.format.read_array_header_1_0(stream)
    if fortran_order or found != kind:
        raise ValueError(f"an array has type {found}, not {kind}")
    return tuple(int(size) for size in shape)


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ValueError("an array is shorter than its header states")
    return data


def _read_end(stream: IO[bytes]) -> None:
    """Reads past the end, where the archive compares the checksum."""
    if stream.read(1):
        raise ValueError("an array is longer than its header states")
