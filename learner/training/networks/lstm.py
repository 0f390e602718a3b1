"""Recurrent memory: an LSTM after the body's layers (Hochreiter and Schmidhuber 1997).

A memory is one row of ``h`` followed by ``c``, ``[B, memory_size]``, each half as wide, in ML-Agents' order. An actor
advances one step at a time; training unrolls many sequences at once, which begin with the memories that actors
recorded. Sequences are *packed*: rows are ordered by step (the first row of every sequence, then the second of every
one that has two, ...), longest sequence first. Nothing is padded, so padding cannot influence the result.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from learner.training.networks.initializers import Initializer

FORGET_BIAS = 1.0
"""Initial bias of the forget gates (Gers et al. 2000): memories persist until training changes this bias."""
_GATES = 4  # input, forget, candidate, output: torch's order


class Unrolled(NamedTuple):
    """The layout of B packed rows as S sequences of at most L steps.

    Attributes:
        batch_sizes: ``[L]`` int64 on the CPU, number of sequences with a row at each step; the sum is B.
        memory: ``[S, memory_size]``, memory before the first row of each sequence.
    """

    batch_sizes: Tensor
    memory: Tensor


class Memory(nn.Module):
    """An LSTM of one layer.

    Args:
        inputs: Width of the input.
        memory_size: Number of values in a memory; even.
        initializer: Draws the initial weights.

    Attributes:
        size: Width of the result: half of a memory.
        memory_size: Number of values in a memory; even.
    """

    def __init__(self, inputs: int, memory_size: int, initializer: Initializer) -> None:
        super().__init__()
        self.memory_size = memory_size
        self.size = memory_size // 2
        self.input_weight = nn.Parameter(initializer.gates(_GATES, inputs, self.size))
        self.hidden_weight = nn.Parameter(initializer.gates(_GATES, self.size, self.size))
        self.bias = nn.Parameter(torch.zeros(_GATES * self.size))
        with torch.no_grad():
            self.bias[self.size : 2 * self.size] = FORGET_BIAS

    def forward(self, values: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Computes one step with plain operators that every ONNX runtime supports.

        Args:
            values: ``[B, inputs]``.
            memory: Memory before the step, ``[B, memory_size]``.

        Returns:
            ``[B, size]``, and the memory after the step.
        """
        hidden, cell = torch.split(memory, self.size, dim=1)
        sums = nn.functional.linear(values, self.input_weight, self.bias) + nn.functional.linear(
            hidden, self.hidden_weight
        )
        enter, keep, candidate, leave = torch.split(sums, self.size, dim=1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        hidden = torch.sigmoid(leave) * torch.tanh(cell)
        return hidden, torch.cat((hidden, cell), dim=1)

    def unroll(self, values: Tensor, sequences: Unrolled) -> tuple[Tensor, Tensor]:
        """Computes whole sequences with torch's LSTM.

        Args:
            values: ``[B, inputs]``, packed.
            sequences: Layout of the sequences.

        Returns:
            ``[B, size]``, packed, and the memory after the last row of each sequence, ``[S, memory_size]``.
        """
        hidden, cell = torch.split(sequences.memory.unsqueeze(0), self.size, dim=2)
        # torch's LSTM has two biases where one suffices; the second is zero.
        weights = [self.input_weight, self.hidden_weight, self.bias, torch.zeros_like(self.bias)]
        if values.device.type == "cuda":
            weights = _side_by_side(weights)
        found, hidden, cell = torch.lstm(
            values,
            sequences.batch_sizes,
            (hidden.contiguous(), cell.contiguous()),
            weights,
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=True,
            bidirectional=False,
        )
        return found, torch.cat((hidden[0], cell[0]), dim=1)


def _side_by_side(weights: list[Tensor]) -> list[Tensor]:
    """Stores weights contiguously in cuDNN's order; with any other layout cuDNN copies them and torch warns."""
    parts = torch.split(torch.cat([weight.reshape(-1) for weight in weights]), [weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
