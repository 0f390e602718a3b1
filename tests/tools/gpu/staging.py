"""Checks that staged chunks are on the device bit by bit as on a CPU."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.columns import on_policy_columns
from learner.training.buffers.layout import segments_of
from tests.protos.builders import CARTPOLE, EVERYTHING, MEMORY_SIZE, MEMORY_STRIDE, full_chunk, small_chunk
from tests.tools.gpu.cases import KINDS
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import CPU, finish

_BLOCK_ROWS: Final = 24
"""Less than most chunks take, so that both pinned buffers are in use, and a third copy has to wait."""
_RING_ROWS: Final = 160
_CHUNKS: Final = 60
_BUSY_SIZE: Final = 4096
"""Of the matrices that keep a GPU busy; eight products take it some milliseconds."""

SPECS: Final[tuple[BehaviorSpec, ...]] = (CARTPOLE, EVERYTHING, KINDS["pictures"].spec, KINDS["entities"].spec)


def check(setup: Setup) -> Outcome:
    """Sends the same random chunks through a buffer on the CPU and one on the device, which is idle or busy."""
    compared, faults = 0, []
    for number, spec in enumerate(SPECS):
        for grows in (False, True):
            for busy in (False, True):
                expected = _taken(spec, CPU, grows=grows, busy=False, seed=number)
                found = _taken(spec, setup.device, grows=grows, busy=busy, seed=number)
                rows, wrong = _compare(expected, found)
                compared += rows
                if wrong:
                    how = f"{'growing' if grows else 'fixed'} ring, {'busy' if busy else 'idle'} device"
                    faults.append(f"{spec.name}, {how}: {', '.join(wrong)}")
    text = f"{compared:,} rows of {len(SPECS)} behaviors are bit-equal, through rings of {_RING_ROWS} rows"
    return Outcome(not faults, "; ".join(faults) or text, {"rows": float(compared)})


def _taken(spec: BehaviorSpec, device: torch.device, *, grows: bool, busy: bool, seed: int) -> list[dict[str, Tensor]]:
    """Fills, takes and frees repeatedly, and returns the rows of each update, read late if the device is busy.

    Rows are freed while the device still has to read them, and the next chunks are staged at once: their copies must
    wait for the reads.
    """
    recurrent = spec is EVERYTHING
    columns = on_policy_columns(
        spec, memory_size=MEMORY_SIZE if recurrent else 0, memory_stride=MEMORY_STRIDE if recurrent else 0
    )
    buffer = UpdateBuffer(columns, _RING_ROWS, _BLOCK_ROWS, device, grows=grows)
    matrix = torch.ones(_BUSY_SIZE, _BUSY_SIZE, device=device) if busy and device.type == "cuda" else None
    taken: list[dict[str, Tensor]] = []
    for number, chunk in enumerate(_chunks(spec, seed)):
        parts, chosen = segments_of(chunk), np.arange(chunk.segments)
        while len(chosen):
            chosen = chosen[buffer.add(chunk, parts, chosen, number) :]
            if len(chosen) or number % 3 == 2:
                taken.append(_update(buffer, matrix))
        if number % 7 == 6:
            buffer.drop_waiting(number - 2)
    finish(device)
    return taken


def _update(buffer: UpdateBuffer, matrix: Tensor | None) -> dict[str, Tensor]:
    """Takes what waits, reads it as an update does, and frees it."""
    buffer.take(60)
    plan = buffer.plan()
    if matrix is not None:
        for _ in range(8):
            torch.mm(matrix, matrix)
    read = {name: values.index_select(0, plan.rows) for name, values in buffer.ring.storage.items()}
    read["continues"], read["bootstraps"] = plan.continues, plan.bootstraps
    buffer.settle()
    return read


def _chunks(spec: BehaviorSpec, seed: int) -> Iterator[Chunk]:
    """Yields chunks of one to eight segments of one to twenty steps; every other one has all columns there are."""
    random = np.random.default_rng(seed)
    for number in range(_CHUNKS):
        lengths = tuple(int(length) for length in random.integers(1, 21, size=int(random.integers(1, 9))))
        full = spec is EVERYTHING or (number % 2 and spec.action.mask_size)
        chunk = (full_chunk if full else small_chunk)(spec, lengths, seed=number)
        chunk.base_version = number
        yield chunk


def _compare(expected: list[dict[str, Tensor]], found: list[dict[str, Tensor]]) -> tuple[int, list[str]]:
    """Returns how many rows were compared, and which columns differ."""
    if len(expected) != len(found):
        return 0, [f"{len(found)} updates, and {len(expected)} on the CPU"]
    wrong = {
        name
        for one, other in zip(expected, found, strict=True)
        for name, values in one.items()
        if not torch.equal(values, other[name].cpu())
    }
    return sum(one["continues"].shape[0] for one in expected), sorted(wrong)
