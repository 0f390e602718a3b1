"""Tests sequences of a replay memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.trajectories import Chunk

from learner.training.buffers.columns import MEMORY, REWARD
from learner.training.buffers.layout import segments_of
from learner.training.buffers.replay import ReplayMemory, replay_row_bytes, replay_size
from learner.training.buffers.replay_file import BadReplay, read_replay, write_replay
from learner.training.buffers.replay_sequences import DrawnSequences
from learner.training.buffers.sequences import pack_with_next
from tests.learner.training.buffers.chunks import SPEC, make_chunk
from tests.learner.training.buffers.test_replay_file import _array, _rewrite

SIZE = 2
LENGTHS = st.lists(st.integers(1, 8), min_size=1, max_size=6)


def recurrent_memory(
    capacity_steps: int, stride: int, size: int = SIZE, seed: int = 0, burn_in: int = 0
) -> ReplayMemory:
    """Returns a memory for the behavior of `make_chunk` with a policy memory of two numbers."""
    found = replay_size(replay_row_bytes(SPEC, size), buffer_size=capacity_steps, time_horizon=8)
    generator = torch.Generator().manual_seed(seed)
    return ReplayMemory(
        SPEC, found, torch.device("cpu"), generator, memory_size=size, memory_stride=stride, burn_in=burn_in
    )


def recurrent_chunk(lengths: list[int], stride: int, first: int) -> Chunk:
    """Returns a chunk whose memory before the sequence at step n is [n + 1/2, -n]."""
    ends = np.cumsum(lengths)
    starts = [
        first + end - length + begin
        for end, length in zip(ends, lengths, strict=True)
        for begin in range(0, length, stride)
    ]
    memories = np.array([[start + 0.5, -start] for start in starts], np.float32)
    return make_chunk(lengths, first=first, memory=memories)


def cut(lengths: list[int], stride: int, first: int, burn_in: int = 0) -> list[tuple[int, int]]:
    """Returns the expected first trained step and length of each sequence."""
    found = []
    for length in lengths:
        begins = [0, *range(stride + burn_in, length, stride)]
        found += [(first + begin, end - begin) for begin, end in zip(begins, [*begins[1:], length], strict=True)]
        first += length
    return found


def warm_steps(memory: ReplayMemory, drawn: DrawnSequences) -> dict[int, list[int]]:
    """Returns the steps of the burn-in of each sequence that has one, by its place in the packed order."""
    if drawn.warm is None:
        return {}
    places, sequences = drawn.warm.rows, drawn.warm.sequences.tolist()
    assert drawn.warm.batch_sizes.tolist() == [len(sequences)] * (len(places) // len(sequences))
    steps = memory.storage[REWARD].index_select(0, places).int().view(-1, len(sequences))
    return dict(zip(sequences, steps.T.tolist(), strict=True))


def drawn_sequences(memory: ReplayMemory, drawn: DrawnSequences) -> list[tuple[int, int]]:
    """Returns first step and length of each drawn sequence, after checking its rows, burn-in and memory."""
    rewards = memory.storage[REWARD].index_select(0, drawn.rows).int()
    states = memory.storage["obs/state"].index_select(0, drawn.rows)[:, 0].int()
    now, after = rewards[drawn.now], states[drawn.sequences :]
    assert torch.equal(states[drawn.now], now)
    assert bool(((after == now + 1) | (after == -now)).all())
    firsts = rewards[: drawn.sequences].tolist()
    warm = warm_steps(memory, drawn)
    remembered = memory.storage[MEMORY].index_select(0, drawn.memory_rows).tolist()
    for sequence, first in enumerate(firsts):
        begin = warm[sequence][0] if sequence in warm else first
        assert [*warm.get(sequence, []), first] == list(range(begin, first + 1))
        assert remembered[sequence] == [begin + 0.5, -begin]
    found = [[first] for first in firsts]
    sizes = drawn.batch_sizes.tolist()
    steps = torch.split(now, sizes[1:])
    assert steps[0].tolist() == firsts
    for place in steps[1:]:
        for steps_of, step in zip(found, place.tolist(), strict=False):
            assert step == steps_of[-1] + 1
            steps_of.append(step)
    return [(sequence[0], len(sequence)) for sequence in found]


@settings(max_examples=60, deadline=None)
@given(st.lists(LENGTHS, min_size=1, max_size=12), st.integers(16, 40), st.integers(1, 9), st.integers(0, 5))
def test_what_is_drawn_are_whole_sequences_of_one_segment(
    chunks: list[list[int]], capacity: int, stride: int, burn_in: int
) -> None:
    """Each step is trained in one sequence, and all but the first of a segment are warmed by the steps before.

    Sequences have their memory and their next observations, and are drawn equally often.
    """
    memory = recurrent_memory(capacity, stride, burn_in=burn_in)
    first, expected, begins = 0, [], set[int]()
    for lengths in chunks:
        chunk = recurrent_chunk(lengths, stride, first)
        memory.add(chunk, segments_of(chunk), np.arange(len(lengths)))
        expected += cut(lengths, stride, first, burn_in)
        begins |= {first + sum(lengths[:index]) for index in range(len(lengths))}
        first += sum(lengths)
        oldest = first - memory.steps
        whole = [each for each in expected if each[0] - (0 if each[0] in begins else burn_in) >= oldest]
        assert memory.sequences is not None
        assert len(memory.sequences) == len(whole) > 0
        seen: list[tuple[int, int]] = []
        for part in memory.draw_sequences(20 * len(whole), 2):
            found = drawn_sequences(memory, part)
            seen += found
            warm = warm_steps(memory, part)
            assert {place for place, (begin, _) in enumerate(found) if burn_in and begin not in begins} == set(warm)
            assert all(len(steps) == burn_in for steps in warm.values())
        assert (set(seen), len(seen)) == (set(whole), 40 * len(whole))
    assert sum(length for _, length in expected) == first
    assert sorted(step for begin, length in expected for step in range(begin, begin + length)) == list(range(first))


@given(LENGTHS)
def test_rows_of_steps_and_of_what_came_after_them_go_together(lengths: list[int]) -> None:
    """Packed sequences and their final rows have a constant distance."""
    ends = np.cumsum(np.array(lengths) + 1)
    starts = ends - np.array(lengths) - 1
    packed = pack_with_next(starts, np.array(lengths))
    assert packed.rows[len(lengths) :].tolist() == (packed.rows[packed.now] + 1).tolist()
    finals = set((ends - 1).tolist())
    assert Counter(packed.rows[packed.now].tolist()) == Counter(set(range(ends[-1])) - finals)
    assert packed.batch_sizes[1:].sum() == len(packed.now)


def test_draws_are_uniform_and_repeat_under_the_same_seed() -> None:
    """Each step is equally likely, whatever the length of its sequence, and draws are counted."""
    memory, twin = recurrent_memory(40, 4), recurrent_memory(40, 4)
    for each in (memory, twin):
        chunk = recurrent_chunk([8, 1, 3, 6], 4, 0)
        each.add(chunk, segments_of(chunk), np.arange(4))
    (drawn,), (again,) = memory.draw_sequences(6000), twin.draw_sequences(6000)
    assert torch.equal(drawn.rows, again.rows)
    counts = np.bincount(memory.storage[REWARD].index_select(0, drawn.step_rows).int().numpy(), minlength=18)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert memory.counters.drawn == len(drawn.now)


def written(
    tmp_path: Path, lengths: list[int], stride: int = 3, capacity: int = 30, burn_in: int = 0
) -> tuple[ReplayMemory, Path]:
    """Returns a memory and its file."""
    memory, first = recurrent_memory(capacity, stride, burn_in=burn_in), 0
    for length in lengths:
        chunk = recurrent_chunk([length], stride, first)
        memory.add(chunk, segments_of(chunk), np.arange(1))
        first += length
    path = tmp_path / "replay.npz"
    write_replay(memory, path)
    return memory, path


@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("lengths", [[3], [8, 8, 8], [8] * 9, [1, 2, 3] * 9])
def test_what_is_read_is_what_was_written(tmp_path: Path, lengths: list[int], burn_in: int) -> None:
    """A read memory draws the same sequences and accepts new steps."""
    memory, path = written(tmp_path, lengths, burn_in=burn_in)
    again = recurrent_memory(30, 3, seed=1, burn_in=burn_in)
    read_replay(again, path)
    for seed in (3, 4):
        rewards = []
        for each in (memory, again):
            each._generator.manual_seed(seed)
            (drawn,) = each.draw_sequences(50)
            drawn_sequences(each, drawn)
            rewards.append(each.storage[REWARD].index_select(0, drawn.step_rows).tolist())
            chunk = recurrent_chunk([8, 5], 3, sum(lengths) + 100 * seed)
            each.add(chunk, segments_of(chunk), np.arange(2))
        assert rewards[0] == rewards[1]


def test_a_smaller_memory_takes_the_newest_sequences_that_are_whole(tmp_path: Path) -> None:
    """A smaller memory reads the newest whole sequences."""
    _, path = written(tmp_path, [8, 8, 8])
    smaller = recurrent_memory(9, 3)
    read_replay(smaller, path)
    assert set(drawn_sequences(smaller, *smaller.draw_sequences(100))) == {(16, 3), (19, 3), (22, 2)}


@pytest.mark.parametrize(("stride", "size"), [(4, SIZE), (3, SIZE + 2)])
def test_a_file_of_another_shape_is_refused_by_name(tmp_path: Path, stride: int, size: int) -> None:
    """A file with another memory size or stride is refused with the columns of both."""
    _, path = written(tmp_path, [8, 8, 8])
    with pytest.raises(BadReplay, match=rf"its columns are .*'memory', '<f4', \[{SIZE}\], 3.*, those of .*'memory'"):
        read_replay(recurrent_memory(30, stride, size), path)


def test_a_file_of_another_burn_in_is_refused(tmp_path: Path) -> None:
    """A file whose sequences have another burn-in is refused, even if the stride is the same."""
    for own, other, message in ((0, 2, "burn_in 2"), (2, 0, "burn_in 0"), (2, 1, "burn_in other than 1")):
        _, path = written(tmp_path, [8, 8, 8], burn_in=own)
        memory = recurrent_memory(30, 3, burn_in=other)
        with pytest.raises(BadReplay, match=message):
            read_replay(memory, path)
        assert memory.steps == 0


@pytest.mark.parametrize(
    ("burn_in", "table"),
    [
        *(
            (0, table)
            for table in (
                [[0, 4]], [[0, 0]], [[-1, 3]], [[24, 3]], [[7, 3]], [[0, 3], [2, 3]], [[3, 3], [0, 3]], [[0, 3, 1]], [0, 3],
            )
        ),
        *(
            (2, table)
            for table in (
                [[0, 6, 0]], [[0, 4, 2]], [[0, 3, 1]], [[0, 3, -2]], [[0, 5, 0], [2, 3, 2]],
                [[0, 5, 0], [3, 3, 2], [3, 3, 2]], [[7, 2, 2]], [[23, 3, 2]], [[0, 3]],
            )
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_hostile_table_of_sequences_is_refused(tmp_path: Path, burn_in: int, table: list[object]) -> None:
    """Invalid tables of sequences, with and without a burn-in, are refused."""
    _, path = written(tmp_path, [8, 8, 8], burn_in=burn_in)
    _rewrite(path, "sequences.npy", _array(table, "<i8"))
    memory = recurrent_memory(30, 3, burn_in=burn_in)
    with pytest.raises(BadReplay, match="its table of sequences"):
        read_replay(memory, path)
    assert memory.steps == 0
