"""Tests the file of a replay memory."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rollcast.enums import ObservationKind, SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.training.buffers.columns import ACTION_MASK, DISCRETE_ACTION, REWARD, TERMINATED
from learner.training.buffers.replay import ReplayMemory, replay_row_bytes, replay_size
from learner.training.buffers.replay_file import BadReplay, read_replay, write_replay
from tests.learner.training.buffers.chunks import make_chunk
from tests.learner.training.buffers.test_replay import add, held, memory_of


def written(tmp_path: Path, lengths: list[int], capacity: int = 30) -> tuple[ReplayMemory, Path]:
    """Returns a memory and its file."""
    memory = memory_of(capacity)
    first = 0
    for length in lengths:
        add(memory, make_chunk([length], first=first))
        first += length
    path = tmp_path / "replay.npz"
    write_replay(memory, path)
    return memory, path


def transitions(memory: ReplayMemory) -> dict[int, tuple[float, ...]]:
    """Returns each transition of a memory by its number."""
    places = memory.draw(100 * memory.steps)
    storage = memory.storage
    columns = (
        storage[REWARD][places.rows],
        storage["obs/state"][places.rows, 0],
        storage["obs/state"][places.next_rows, 0],
        storage[DISCRETE_ACTION][places.rows, 0],
        storage[TERMINATED][places.rows],
    )
    return {int(row[0]): tuple(float(value) for value in row) for row in zip(*columns, strict=True)}


@pytest.mark.parametrize("lengths", [[3], [8, 8, 8], [8] * 9, [1, 2, 3] * 9])
def test_what_is_read_is_what_was_written(tmp_path: Path, lengths: list[int]) -> None:
    """A read memory has every written transition and accepts new steps."""
    memory, path = written(tmp_path, lengths)
    again = memory_of(30)
    read_replay(again, path)
    assert transitions(again) == transitions(memory)
    assert again.steps == memory.steps
    total = sum(lengths)
    for each in (memory, again):
        add(each, make_chunk([8, 8], first=total))
    assert held(again) == held(memory)


def test_a_smaller_memory_takes_the_newest_steps(tmp_path: Path) -> None:
    """A smaller memory reads the newest steps."""
    _, path = written(tmp_path, [8, 8, 8])
    smaller = memory_of(10)
    read_replay(smaller, path)
    assert held(smaller) == list(range(14, 24))


def test_masks_come_along(tmp_path: Path) -> None:
    """The file remembers whether there were masks."""
    memory = memory_of(30)
    masks = np.ones((4, 3), np.uint8)
    add(memory, make_chunk([4], action_mask=masks, final_action_mask=masks[:1]))
    write_replay(memory, tmp_path / "replay.npz")
    again = memory_of(30)
    read_replay(again, tmp_path / "replay.npz")
    assert again.masked


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(bytes(data))


def test_a_damaged_file_is_refused_and_leaves_the_memory_empty(tmp_path: Path) -> None:
    """A truncated or changed file is refused in one line, and the memory stays empty."""
    memory, path = written(tmp_path, [8, 8, 8])
    whole, expected = path.read_bytes(), transitions(memory)
    for size in range(0, len(whole), 397):
        path.write_bytes(whole[:size])
        again = memory_of(30)
        with pytest.raises(BadReplay):
            read_replay(again, path)
        assert again.steps == 0
    refused = 0
    for place in range(0, len(whole), 53):
        path.write_bytes(whole)
        _flip(path, place)
        again = memory_of(30)
        try:
            read_replay(again, path)
        except BadReplay:
            refused += 1
            assert again.steps == 0
        else:  # a byte of the archive's own bookkeeping that changes nothing of what it holds
            assert transitions(again) == expected
    assert refused > 15


def _rewrite(path: Path, name: str, data: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    members[name] = data
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def _array(values: object, kind: str) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.array(values, kind), allow_pickle=kind == "O")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("rows.npy", _array([0, 5, 900], "<i8")),
        ("rows.npy", _array([5, 2, 1], "<i8")),
        ("rows.npy", _array([-3, 2], "<i8")),
        ("rows.npy", _array([[0, 1]], "<i8")),
        ("rows.npy", _array([{"a": 1}], "O")),
        ("rows.npy", b"nonsense"),
        ("page.json", b"{}"),
        ("page.json", b"[1]"),
        ("page.json", b"\xff"),
        ("page.json", json.dumps({"format": 1, "used_rows": -1, "columns": []}).encode()),
        ("column_0.npy", _array([[1.0, 2.0]], "<f4")),
        ("column_1.npy", _array(np.full((27, 1), 7), "<i4")),
        ("column_1.npy", _array(np.full((27, 1), -1), "<i4")),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    """Wrong rows, actions, objects and shapes are refused before use."""
    _, path = written(tmp_path, [8, 8, 8])
    _rewrite(path, name, data)
    memory = memory_of(30)
    with pytest.raises(BadReplay, match="is damaged or is not a replay memory of this behavior"):
        read_replay(memory, path)
    assert memory.steps == 0


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    """A compressed file is refused, because it could expand beyond the memory."""
    _, path = written(tmp_path, [8])
    _rewrite(path, "extra", b"", zipfile.ZIP_DEFLATED)
    with pytest.raises(BadReplay, match="compressed"):
        read_replay(memory_of(30), path)


def test_another_behavior_s_file_is_refused(tmp_path: Path) -> None:
    """The file of another behavior is refused by its columns."""
    from tests.learner.training.trainers.synthetic import CONTINUOUS

    _, path = written(tmp_path, [8])
    size = replay_size(replay_row_bytes(CONTINUOUS), buffer_size=30, time_horizon=8)
    other = ReplayMemory(CONTINUOUS, size, torch.device("cpu"), torch.Generator())
    with pytest.raises(BadReplay, match="its columns are"):
        read_replay(other, path)


def _altered(path: Path, name: str, change: Callable[[NDArray[Any]], object]) -> None:
    """Changes an array of a file in place."""
    with np.load(path, allow_pickle=False) as archive:
        values = archive[name].copy()
    change(values)
    _rewrite(path, f"{name}.npy", _array(values, values.dtype.str))


def _column(memory: ReplayMemory, name: str) -> str:
    return f"column_{[column.name for column in memory.columns].index(name)}"


IMPOSSIBLE: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "not a number": (REWARD, math.nan),
        "infinite": ("obs/state", -math.inf),
        "more than terminated": (TERMINATED, 200),
        "no mask": (ACTION_MASK, 2),
        "everything forbidden": (ACTION_MASK, 0),
    }
)


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_values_that_no_actor_may_send_are_not_read(tmp_path: Path, case: str) -> None:
    """A value that no actor may send is refused."""
    memory, path = written(tmp_path, [8, 8, 8])
    column, value = IMPOSSIBLE[case]
    _altered(path, _column(memory, column), lambda values: values.__setitem__(3, value))
    again = memory_of(30)
    with pytest.raises(BadReplay, match="is damaged or is not a replay memory of this behavior"):
        read_replay(again, path)
    assert again.steps == 0


def test_a_forbidden_action_is_not_read(tmp_path: Path) -> None:
    """A forbidden action is refused, except after the end of an episode."""
    memory = memory_of(30)
    masks = np.ones((4, 3), np.uint8)
    masks[:, 2] = 0
    chunk = make_chunk(
        [4],
        ends=[SegmentEnd.TERMINATED],
        action_mask=masks,
        final_action_mask=np.zeros((1, 3), np.uint8),
        discrete_action=np.array([[0], [1], [0], [1]], np.int32),
    )
    add(memory, chunk)
    path = tmp_path / "replay.npz"
    write_replay(memory, path)
    read_replay(memory_of(30), path)
    changes: dict[str, Callable[[NDArray[Any]], object]] = {
        DISCRETE_ACTION: lambda values: values.__setitem__((1, 0), 2),
        TERMINATED: lambda values: values.fill(0),
    }
    for column, change in changes.items():
        write_replay(memory, path)
        _altered(path, _column(memory, column), change)
        with pytest.raises(BadReplay, match="forbid the chosen action or all actions"):
            read_replay(memory_of(30), path)


def test_categories_that_there_are_not_are_not_read(tmp_path: Path) -> None:
    """A category out of range is refused."""
    seen = ObservationSpec("state", np.dtype(np.int32), (2,), ObservationKind.CATEGORICAL, categories=(3, 5))
    spec = BehaviorSpec("Test", (seen,), ActionSpec(discrete_branches=(3,)))
    size = replay_size(replay_row_bytes(spec), buffer_size=30, time_horizon=8)
    memory, again = (ReplayMemory(spec, size, torch.device("cpu"), torch.Generator()) for _ in range(2))
    numbers = np.tile(np.array([[2, 4]], np.int32), (8, 1))
    columns: dict[str, Any] = {"obs/state": numbers, "final_obs/state": numbers[:1]}
    add(memory, make_chunk([8], **columns))
    path = tmp_path / "replay.npz"
    write_replay(memory, path)
    _altered(path, "column_0", lambda values: values.__setitem__((8, 0), 3))
    with pytest.raises(BadReplay, match="categories that this behavior does not have"):
        read_replay(again, path)


@pytest.mark.parametrize("page", [{"used_rows": 10_000}, {"used_rows": 28}, {"masked": "yes"}])
def test_a_page_that_does_not_go_with_its_steps_is_refused(tmp_path: Path, page: dict[str, object]) -> None:
    """A page that does not fit its steps is refused."""
    memory, path = written(tmp_path, [8, 8, 8])
    with zipfile.ZipFile(path) as archive:
        told = {**json.loads(archive.read("page.json")), **page}
    _rewrite(path, "page.json", json.dumps(told).encode())
    for index, column in enumerate(memory.columns):
        values = torch.zeros((told["used_rows"], *column.shape), dtype=column.dtype).numpy()
        _rewrite(path, f"column_{index}.npy", _array(values, values.dtype.str))
    with pytest.raises(
        BadReplay, match=r"table of rows spans 0 to 25|its page.json has invalid values: used_rows 27, masked 'yes'"
    ):
        read_replay(memory_of(30), path)


@pytest.mark.parametrize("text", [b"{'descr': '<i8', (", b"(" * 5000, b"  {\n 3", b"'''", b"{'descr': 'O'}"])
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, text: bytes) -> None:
    """An invalid numpy header is refused."""
    _, path = written(tmp_path, [8])
    _rewrite(path, "rows.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(BadReplay):
        read_replay(memory_of(30), path)


def test_beginnings_of_episodes_are_read_too(tmp_path: Path) -> None:
    """Beginnings survive the file, and a smaller memory keeps those of its steps."""
    memory = memory_of(30)
    add(memory, make_chunk([3, 2, 4, 3], first_step=np.array([0, 5, 0, 0], np.uint32)))
    path = tmp_path / "replay.npz"
    write_replay(memory, path)
    for capacity, expected in ((30, [0, 7, 12]), (7, [0, 5])):
        again = memory_of(capacity)
        read_replay(again, path)
        (starts,) = again.starts.live()
        assert starts.tolist() == expected
    places = again.draw_starts(100, torch.Generator())
    assert set(again.storage[REWARD].index_select(0, places).int().tolist()) == {5, 9}
