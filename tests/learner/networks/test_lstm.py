"""Tests recurrent memory: a step, sequences, and gradients."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learner.buffers.sequences import Cut, pack
from learner.networks.initializers import Initialization, Initializer
from learner.networks.lstm import Memory, Unrolled
from learner.networks.policy import PolicyNetwork
from learner.settings.network import MemorySettings, NetworkSettings

from .specs import behavior

INPUTS, MEMORY = 5, 6
LENGTHS = [4, 1, 3, 4, 2]


def make_memory(kind: Initialization = "orthogonal") -> Memory:
    """Returns a memory with random weights."""
    return Memory(INPUTS, MEMORY, Initializer(kind, torch.Generator().manual_seed(3)))


def packed(lengths: list[int]) -> tuple[list[list[int]], Tensor]:
    """Packs consecutive sequences and returns the packed row of each step, and the batch sizes."""
    ends = np.cumsum(lengths)
    cut = Cut(ends - np.array(lengths), np.array(lengths), np.arange(len(lengths)))
    found = pack(cut, np.arange(len(lengths)))
    row_of = {int(step): row for row, step in enumerate(found.steps)}
    rows = [[row_of[step] for step in range(end - length, end)] for end, length in zip(ends, lengths, strict=True)]
    return rows, torch.from_numpy(found.batch_sizes)


def order_of(lengths: list[int]) -> list[int]:
    """Returns the sequences, longest first."""
    return sorted(range(len(lengths)), key=lambda index: -lengths[index])


@pytest.mark.parametrize("kind", ["kaiming", "lecun", "orthogonal"])
def test_a_step_is_that_of_torchs_lstm(kind: Initialization) -> None:
    """A step equals that of torch's LSTM cell, with h and c concatenated."""
    memory = make_memory(kind)
    cell = nn.LSTMCell(INPUTS, MEMORY // 2)
    with torch.no_grad():
        for own, theirs in (
            (memory.input_weight, cell.weight_ih), (memory.hidden_weight, cell.weight_hh), (memory.bias, cell.bias_ih),
        ):  # fmt: skip
            theirs.copy_(own)
        cell.bias_hh.zero_()
    values, before = torch.randn(7, INPUTS), torch.randn(7, MEMORY)
    hidden, after = memory(values, before)
    expected = cell(values, (before[:, : MEMORY // 2], before[:, MEMORY // 2 :]))
    torch.testing.assert_close(hidden, expected[0])
    torch.testing.assert_close(after, torch.cat(expected, 1))


def test_forget_gates_begin_open() -> None:
    """The bias of forget gates is 1, all others are 0, and each gate is initialized separately."""
    memory = make_memory()
    size = MEMORY // 2
    assert memory.bias.tolist() == [0.0] * size + [1.0] * size + [0.0] * 2 * size
    for gate in torch.split(memory.hidden_weight, size):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(size))


def test_sequences_equal_steps_one_by_one() -> None:
    """Outputs, memories and gradients equal those of a float64 loop over each sequence."""
    memory = make_memory()
    values, before = torch.randn(sum(LENGTHS), INPUTS), torch.randn(len(LENGTHS), MEMORY)
    rows, batch_sizes = packed(LENGTHS)
    order = order_of(LENGTHS)
    packed_values = torch.empty_like(values)
    ends = np.cumsum(LENGTHS)
    for sequence, places in enumerate(rows):
        packed_values[places] = values[ends[sequence] - LENGTHS[sequence] : ends[sequence]]
    packed_values.requires_grad_()
    sequences = Unrolled(batch_sizes, before[order])
    outer = torch.randn(sum(LENGTHS), MEMORY // 2)
    hidden, after = memory.unroll(packed_values, sequences)
    to_values, *gradients = torch.autograd.grad(hidden, [packed_values, *memory.parameters()], outer)

    plain = make_memory().double()
    inputs = values.double().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for place, sequence in enumerate(order):
        remembered = before[sequence : sequence + 1].double()
        for step, row in enumerate(rows[sequence]):
            at = ends[sequence] - LENGTHS[sequence] + step
            out, remembered = plain(inputs[at : at + 1], remembered)
            torch.testing.assert_close(hidden[row], out[0].float())
            total = total + (out[0] * outer[row]).sum()
        torch.testing.assert_close(after[place], remembered[0].float())
    expected = torch.autograd.grad(total, [inputs, *plain.parameters()])
    for sequence, places in enumerate(rows):
        theirs = expected[0][ends[sequence] - LENGTHS[sequence] : ends[sequence]]
        torch.testing.assert_close(to_values[places], theirs.float())
    for ours, theirs in zip(gradients, expected[1:], strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-6)


def test_a_policy_steps_as_it_unrolls() -> None:
    """A policy's single steps equal the learner's whole sequence."""
    spec = behavior(continuous=1, branches=(2, 3))
    settings = NetworkSettings(hidden_units=8, memory=MemorySettings(memory_size=MEMORY))
    policy = PolicyNetwork(spec, settings, torch.Generator().manual_seed(5))
    seen, memory = torch.randn(9, 4), torch.randn(1, MEMORY)
    whole = policy.unroll([seen], None, Unrolled(torch.ones(9, dtype=torch.int64), memory))
    for begin, end in pairwise(range(10)):
        output = policy([seen[begin:end]], None, memory)
        assert whole.mean is not None
        assert whole.logits is not None
        torch.testing.assert_close(output.mean[0], whole.mean[begin])
        torch.testing.assert_close(output.logits[0], whole.logits[begin])
        memory = output.recurrent_out
    assert policy.memory_size == MEMORY
