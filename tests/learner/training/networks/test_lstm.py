"""Tests recurrent memory: a step, sequences, and gradients."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from learner.shared.settings.network import MemorySettings, NetworkSettings
from learner.training.networks.initializers import Initialization, Initializer
from learner.training.networks.lstm import Memory, Unrolled
from learner.training.networks.policy import PolicyNetwork

from .specs import behavior

INPUTS, MEMORY = 5, 6


def make_memory(kind: Initialization = "orthogonal") -> Memory:
    """Returns a memory with random weights."""
    return Memory(INPUTS, MEMORY, Initializer(kind, torch.Generator().manual_seed(3)))


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
