"""A replay memory in a file: written whole or not at all, read only if every byte is what was written.

The file is a zip archive of plain numpy arrays (one for each column, without compression), the row of each step, with a
memory of the policy the row and length of each sequence, and a page that says what they are. Nothing in it is code:
arrays of objects are refused. Checksums are compared. What actors may not send is not read from a file either
(`learner.buffers.replay_file`), and every number that is used as an index is checked.
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

from learner.buffers.columns import ACTION_MASK, DISCRETE_ACTION, MEMORY, TERMINATED, RingColumn, observation_column
from learner.buffers.replay import ReplayMemory
from learner.common.files import atomic_file, open_regular
from learner.common.saved_values import reason

_STEPS_AT_ONCE: Final = 2**16


def check_values(memory: ReplayMemory, column: RingColumn, values: NDArray[Any]) -> None:
    """Checks rows ``[N, *shape]`` of a column, each value by itself.

    Raises:
        ValueError: one is NaN or infinite, or there is no such flag or category.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"column {column.name} holds values that are NaN or infinite")
    if column.name in {TERMINATED, ACTION_MASK} and bool((values > 1).any()):
        raise ValueError(f"column {column.name} holds {values.max()}; it can be 0 or 1")
    for observation in memory.spec.observations:
        if observation.kind is not ObservationKind.CATEGORICAL or observation_column(observation.name) != column.name:
            continue
        if bool(((values < 0) | (values >= np.asarray(observation.categories))).any()):
            raise ValueError(f"column {column.name} holds categories that this behavior does not have")


def check_actions(memory: ReplayMemory, rows: NDArray[np.int64], used_rows: int) -> None:
    """Checks discrete actions, which are indices later on, and the masks that they were drawn under.

    Args:
        memory: its storage holds what was read, in the first rows.
        rows: ``[N]``, the row of each step.
        used_rows: how many rows were read.

    Raises:
        ValueError: there is no such action, a mask forbids it, or a mask forbids everything before another action.
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
        # After a terminal state nothing needs to be allowed.
        following = [part.any(dim=1) for part in torch.split(masks[steps + 1], list(memory.branches), dim=1)]
        is_open = torch.stack(following, dim=1).all(dim=1) | (terminated[steps] == 1)
        if not bool(allowed.all()) or not bool(is_open.all()):
            raise ValueError("it holds action masks that forbid what was done, or everything")


FILE_NAME: Final = "last_replay_buffer.npz"
OTHER_FILE_NAME: Final = "last_replay_buffer.other.npz"
"""Where files take turns, so that the one that goes with a state on the disk stays until the next state is there."""
_FORMAT: Final = 1
_PAGE: Final = "page.json"
_ROWS: Final = "rows.npy"
_SEQUENCES: Final = "sequences.npy"
_PIECE_BYTES: Final = 32 * 2**20
"""So much is on its way between device and disk at a time."""
_MAX_PAGE_BYTES: Final = 2**20


class BadReplay(Exception):  # noqa: N818 - says what the file is
    """A file is no replay memory that can be used here.

    Args:
        path: the file.
        reason: what is wrong, in words that follow its name.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


def write_replay(memory: ReplayMemory, path: Path, *, moment: int = 0) -> None:
    """Writes all steps of a memory.

    Args:
        memory: what is written.
        path: the file.
        moment: when this is; whoever reads the file may ask for it.

    Raises:
        WriteFailed: the disk is full, ...; what was there before is untouched.
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
        if memory.sequences is not None:
            starts, lengths = memory.sequences.live()
            table = np.stack((starts - first, lengths), axis=1)
            _write_array(archive, _SEQUENCES, (table.dtype, table.shape), iter([table]))
        places = memory.places_between(first, last)
        for index, column in enumerate(memory.columns):
            values = memory.storage[column.name]
            form = (_numpy_type(column.dtype), (last - first, *column.shape))
            _write_array(archive, _member(index), form, _pieces(values, places))


def read_replay(memory: ReplayMemory, path: Path, *, moment: int | None = None) -> None:
    """Reads steps into an empty memory; the newest ones, if it is smaller than the one that was written.

    Args:
        memory: what is filled.
        path: the file.
        moment: when it must have been written; None takes any.

    Raises:
        BadReplay: it is missing, damaged, of another behavior, moment or version; the memory is as empty as it was.
    """
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            _read(memory, archive, moment)
    except FileNotFoundError as error:
        raise BadReplay(path, "does not exist") from error
    except OSError as error:
        raise BadReplay(path, f"cannot be read: {error.strerror or error}") from error
    except Exception as error:  # whatever a file that is damaged, or that somebody else made, can provoke
        memory.clear()
        raise BadReplay(path, f"is damaged, or holds no replay memory of this behavior ({reason(error)})") from error


def _read(memory: ReplayMemory, archive: zipfile.ZipFile, moment: int | None) -> None:
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
        raise ValueError("it is compressed")
    page = _read_page(archive)
    if page.get("format") != _FORMAT:
        raise ValueError(f"its format is {page.get('format')!r}, not {_FORMAT}")
    if moment is not None and page.get("moment") != moment:
        raise ValueError(f"it was written at step {page.get('moment')!r}, not at step {moment}")
    if page.get("columns") != _described(memory):
        raise ValueError(f"its columns are {page.get('columns')}, those of this behavior {_described(memory)}")
    used_rows, masked = page.get("used_rows"), page.get("masked")
    if type(used_rows) is not int or used_rows < 0 or type(masked) is not bool:
        raise ValueError(f"its page says used_rows {used_rows!r:.60} and masked {masked!r:.60}")
    if not used_rows:
        return
    rows = _read_rows(archive, used_rows)
    skipped = _surplus(memory, rows, used_rows)
    kept = rows[skipped:]
    first = int(kept[0])
    sequences = None if memory.sequences is None else _read_sequences(archive, rows, used_rows, memory.sequences.stride)
    for index, column in enumerate(memory.columns):
        _read_column(memory, archive, _member(index), (used_rows, first), column)
    check_actions(memory, kept - first, used_rows - first)
    if sequences is not None:
        starts, lengths = sequences[:, sequences[0] >= first]
        sequences = np.stack((starts - first, lengths))
    memory.restore(
        kept - first,
        used_rows - first,
        masked=masked,
        sequences=None if sequences is None else (sequences[0], sequences[1]),
    )


def _surplus(memory: ReplayMemory, rows: NDArray[np.int64], used_rows: int) -> int:
    """Returns how many of the oldest steps do not fit."""
    steps = max(0, len(rows) - memory.size.capacity_steps)
    over = used_rows - memory.size.capacity_rows
    return max(steps, int(np.searchsorted(rows, over)) if over > 0 else 0)


def _read_page(archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo(_PAGE).file_size > _MAX_PAGE_BYTES:
        raise ValueError("its page is too long")
    page = json.loads(archive.read(_PAGE))
    if not isinstance(page, dict):
        raise ValueError("its page is none")  # noqa: TRY004 - it is a fault of the file
    return page


def _read_rows(archive: zipfile.ZipFile, used_rows: int) -> NDArray[np.int64]:
    with archive.open(_ROWS) as stream:
        shape = _read_header(stream, np.dtype(np.int64))
        if len(shape) != 1 or not 0 < shape[0] <= used_rows or archive.getinfo(_ROWS).file_size < 8 * shape[0]:
            raise ValueError(f"its table of rows has the shape {shape}")
        rows = np.frombuffer(_read_exactly(stream, 8 * shape[0]), np.int64)
        _read_end(stream)
    if not bool((np.diff(rows) > 0).all()):
        raise ValueError("its table of rows is not in order")
    if rows[0] != 0 or rows[-1] + 2 != used_rows:  # else steps that do not fit might be all there are
        raise ValueError(
            f"its table of rows goes from {rows[0]} to {rows[-1]}, which are not those of {used_rows} rows"
        )
    return rows


def _read_sequences(
    archive: zipfile.ZipFile, rows: NDArray[np.int64], used_rows: int, stride: int
) -> NDArray[np.int64]:
    """Reads rows and lengths of the sequences ``[2, Q]``: steps one after another, none in two of them."""
    with archive.open(_SEQUENCES) as stream:
        shape = _read_header(stream, np.dtype(np.int64))
        if len(shape) != 2 or shape[1] != 2 or not 0 <= shape[0] <= len(rows):
            raise ValueError(f"its table of sequences has the shape {shape}")
        starts, lengths = np.frombuffer(_read_exactly(stream, 16 * shape[0]), np.int64).reshape(shape).T
        _read_end(stream)
    if bool(((lengths < 1) | (lengths > stride) | (starts < 0) | (starts >= used_rows - lengths)).any()):
        raise ValueError(f"its table of sequences has some that are not of 1 to {stride} steps")
    steps_before = np.searchsorted(rows, np.stack((starts, starts + lengths)))
    are_steps = bool((steps_before[1] - steps_before[0] == lengths).all())
    if not are_steps or bool((np.diff(starts) < lengths[:-1]).any()):
        raise ValueError("its table of sequences does not go with its steps")
    return np.stack((starts, lengths))


def _read_column(
    memory: ReplayMemory, archive: zipfile.ZipFile, name: str, span: tuple[int, int], column: RingColumn
) -> None:
    """Reads the rows of a column from the second number of ``span`` on; the first is how many there are."""
    target = memory.storage[column.name]
    used_rows, first = span
    kind = _numpy_type(column.dtype)
    row_bytes = column.row_bytes
    with archive.open(name) as stream:
        shape = _read_header(stream, kind)
        if shape != (used_rows, *column.shape):
            raise ValueError(f"column {column.name} has the shape {shape}")
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
        # Where actors record memories is a matter of the run file.
        strides = [] if column.name != MEMORY else [column.stride]
        found.append([column.name, _numpy_type(column.dtype).str, list(column.shape), *strides])
    return found


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _member(index: int) -> str:
    return f"column_{index}.npy"


def _pieces(values: Tensor, places: list[slice]) -> Iterator[NDArray[Any]]:
    """Yields rows in pieces that fit the host."""
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
        raise ValueError("an array is of another version")
    shape, fortran_order, found = np.lib.format.read_array_header_1_0(stream)
    if fortran_order or found != kind:
        raise ValueError(f"an array is of type {found}, not {kind}")
    return tuple(int(size) for size in shape)


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ValueError("an array ends too early")
    return data


def _read_end(stream: IO[bytes]) -> None:
    """Reads past the end, which is where the archive compares the checksum."""
    if stream.read(1):
        raise ValueError("an array is longer than it says")
