"""Checks the replay memory: draws, evictions, and its file, which either device can read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.training.buffers.layout import segments_of
from learner.training.buffers.replay import ReplayMemory, replay_row_bytes, replay_size
from learner.training.buffers.replay_file import read_replay, write_replay
from tests.protos.builders import CARTPOLE, EVERYTHING, MEMORY_SIZE, MEMORY_STRIDE, full_chunk, small_chunk
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import CPU
from tests.tools.gpu.host_random import HostRandom

_STEPS: Final = 300
_HORIZON: Final = 20
_CHUNKS: Final = 40
_DRAWS: Final = 64
SPECS: Final[tuple[BehaviorSpec, ...]] = (CARTPOLE, EVERYTHING)
"""Without and with a memory of the policy: steps are drawn, or sequences."""


def check(setup: Setup) -> Outcome:
    """Fills memories on both devices beyond their capacity and compares all draws."""
    drawn, faults = 0, []
    for spec in SPECS:
        with HostRandom():
            expected, found = _memory(spec, CPU), _memory(spec, setup.device)
            for number, chunk in enumerate(_chunks(spec)):
                for memory in (expected, found):
                    memory.add(chunk, segments_of(chunk), np.arange(chunk.segments))
                ours, theirs = _drawn(found), _drawn(expected)
                drawn += theirs[0].shape[0]
                if not _are_equal(ours, theirs):
                    faults.append(f"{spec.name}: chunk {number} draws other steps")
        if found.counters != expected.counters or int(found.evicted_undrawn) != int(expected.evicted_undrawn):
            faults.append(f"{spec.name}: counted {found.counters}, and {expected.counters} on the CPU")
    text = f"{drawn:,} drawn steps are bit-equal, {_CHUNKS} chunks through memories of {_STEPS} steps"
    return Outcome(not faults, "; ".join(faults) or text, {"drawn_steps": float(drawn)})


def check_file(setup: Setup) -> Outcome:
    """Takes a memory from the device to a file, to the CPU, to a file, and back to the device."""
    steps, faults = 0, []
    for spec in SPECS:
        first = _memory(spec, setup.device)
        for chunk in _chunks(spec):
            first.add(chunk, segments_of(chunk), np.arange(chunk.segments))
        on_host = _carried(first, _memory(spec, CPU), setup.folder / f"{spec.name}-there.npz")
        back = _carried(on_host, _memory(spec, setup.device), setup.folder / f"{spec.name}-back.npz")
        steps += first.steps
        for memory, where in ((on_host, "on the CPU"), (back, "back on the device")):
            with HostRandom():
                if memory.steps != first.steps or not _are_equal(_all(memory), _all(first)):
                    faults.append(f"{spec.name}: other steps {where}")
    text = f"{steps:,} steps are bit-equal on the CPU and back on the device"
    return Outcome(not faults, "; ".join(faults) or text, {"steps": float(steps)})


def _memory(spec: BehaviorSpec, device: torch.device) -> ReplayMemory:
    recurrent = spec is EVERYTHING
    memory_size = MEMORY_SIZE if recurrent else 0
    size = replay_size(replay_row_bytes(spec, memory_size), buffer_size=_STEPS, time_horizon=_HORIZON)
    # Sequences are drawn by the host.
    generator = torch.Generator(CPU if recurrent else device).manual_seed(1)
    return ReplayMemory(
        spec, size, device, generator, memory_size=memory_size, memory_stride=MEMORY_STRIDE if recurrent else 0
    )


def _chunks(spec: BehaviorSpec) -> Iterator[Chunk]:
    random = np.random.default_rng(3)
    make = full_chunk if spec is EVERYTHING else small_chunk
    for number in range(_CHUNKS):
        lengths = tuple(int(length) for length in random.integers(1, _HORIZON + 1, size=int(random.integers(1, 6))))
        yield make(spec, lengths, seed=number)


def _carried(memory: ReplayMemory, target: ReplayMemory, path: Path) -> ReplayMemory:
    """Writes a memory and reads it into another one, which it returns."""
    write_replay(memory, path)
    read_replay(target, path)
    return target


def _drawn(memory: ReplayMemory) -> list[Tensor]:
    """Draws once and returns every column of the drawn rows and of those after them, on the CPU."""
    if memory.sequences is None:
        places = [*memory.draw(_DRAWS)]
    else:
        drawn = memory.draw_sequences(8, parts=2)
        places = [rows for part in drawn for rows in (part.step_rows, part.next_rows, part.memory_rows)]
    return [values.index_select(0, rows).cpu() for rows in places for values in memory.storage.values()]


def _all(memory: ReplayMemory) -> list[Tensor]:
    """Returns every column of the rows in use, oldest first, on the CPU."""
    _, first, last = memory.live()
    places = memory.places_between(first, last)
    return [torch.cat([values[place] for place in places]).cpu() for values in memory.storage.values()]


def _are_equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
