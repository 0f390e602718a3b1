"""Tests the count of bytes that a loss keeps for its backward pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from learner.training.networks.kept import Columns, kept_bytes


def layers() -> nn.Sequential:
    """Returns two layers on the meta device, whose shared activation is one tensor."""
    return nn.Sequential(nn.Linear(3, 5, device="meta"), nn.Tanh(), nn.Linear(5, 2, device="meta"))


def columns(rows: int) -> Columns:
    """Returns a minibatch on torch's default device."""
    return {"seen": torch.zeros(rows, 3), "unread": torch.zeros(rows, 7, dtype=torch.uint8)}


def test_each_storage_counts_once_and_parameters_do_not() -> None:
    """Each storage counts once, plus twice the largest one for gradients; parameters do not count."""
    network = layers()

    def loss(minibatch: Columns) -> Tensor:
        found: Tensor = network(minibatch["seen"]).square().sum()
        return found

    found = kept_bytes(network, columns, loss)
    tanh, seen, unread, results = 4 * 5, 4 * 3, 7, 4 * 2
    assert found.per_row == tanh + seen + unread + results + 2 * tanh
    assert found.per_forward_row == 3 * tanh
    assert found.of(1000) == found.constant + 1000 * found.per_row
    assert found.constant == 0


def test_what_does_not_grow_with_the_rows_is_a_constant() -> None:
    """Tensors made from parameters alone are a constant."""
    network = layers()

    def loss(minibatch: Columns) -> Tensor:
        weight = network.get_parameter("0.weight").exp()
        return (minibatch["seen"] @ weight.t()).sum()

    found = kept_bytes(network, columns, loss)
    exponents = 4 * 5 * 3
    assert exponents <= found.constant <= 3 * exponents
    assert found.per_row <= 4 * 3 + 7 + 2 * 4 * 3
