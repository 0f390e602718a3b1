"""Linear layers with an activation after each, and layers whose weights depend on a goal."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from learner.networks.initializers import Initializer

Activation = Literal["swish", "tanh", "relu"]


_MINUS_ONE = torch.tensor(-1.0)


def _by_sigmoid(values: Tensor) -> bool:
    """Says whether tanh is computed as ``2 sigmoid(2 x) - 1``: on a CPU, torch's tanh takes up to eight times as long.

    Files for actors have the operator itself.
    """
    # On "meta", too, where what a minibatch takes is counted: this keeps more than the operator does.
    fast = values.device.type in {"cpu", "meta"}
    return fast and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


def _tanh(values: Tensor) -> Tensor:
    if not _by_sigmoid(values):
        return torch.tanh(values)
    return torch.add(_MINUS_ONE, torch.sigmoid(2.0 * values), alpha=2)


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """Returns the activation of that name; swish is x * sigmoid(x) (Ramachandran et al. 2017, arXiv:1710.05941)."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "swish": nn.functional.silu,
        "tanh": _tanh,
        "relu": torch.relu,
    }
    return functions[name]


class DenseLayers(nn.Module):
    """``[B, inputs]`` to ``[B, units]``.

    Args:
        inputs: width of the input.
        units: width of each layer.
        count: number of layers; with none, what goes in comes out.
        kind: the activation after each.
        initializer: where initial weights come from.
    """

    def __init__(self, inputs: int, units: int, count: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        widths = [inputs] + [units] * count
        # A tuple beside the list: modules look up their submodules slowly, and every minibatch needs these.
        self._layers = tuple(
            initializer.linear(before, after, initializer.gains.hidden) for before, after in itertools.pairwise(widths)
        )
        self.linear = nn.ModuleList(self._layers)
        self._kind = kind
        self._activation = activation(kind)

    def forward(self, values: Tensor) -> Tensor:
        """Computes the last layer's activations ``[B, units]``."""
        if self._kind == "tanh" and _by_sigmoid(values):
            for layer in self._layers:
                # The product doubles the sums on its way.
                doubled = torch.addmm(layer.bias, values, layer.weight.t(), beta=2, alpha=2)
                values = torch.add(_MINUS_ONE, torch.sigmoid(doubled), alpha=2)
            return values
        for layer in self._layers:
            values = self._activation(linear(layer, values))
        return values


def linear(layer: nn.Linear, values: Tensor) -> Tensor:
    """Computes ``[B, outputs]`` of a linear layer without the dispatch of a module, which costs as much as a small product."""
    return nn.functional.linear(values, layer.weight, layer.bias)


class ConditionedLayer(nn.Module):
    """``[B, inputs]`` and goals ``[B, goals]`` to ``[B, units]``; each row is multiplied by weights of its own.

    Only the weights come from the goal, by two layers of ``units`` with swish, a norm and a linear layer; the bias is
    an ordinary parameter.

    Args:
        inputs: width of the input.
        units: width of the result.
        goals: width of the goals, encoded.
        kind: the activation after it.
        initializer: where initial weights come from.
    """

    def __init__(self, inputs: int, units: int, goals: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        self._inputs, self._units = inputs, units
        gain = initializer.gains.hidden
        self.hidden = nn.Sequential(
            initializer.linear(goals, units, gain), nn.SiLU(), initializer.linear(units, units, gain), nn.SiLU()
        )
        # Behind a norm, this bound gives generated weights a variance of 1 / (3 inputs).
        self.weights = initializer.uniform(units, inputs * units, (inputs * units) ** -0.5)
        self.bias = nn.Parameter(torch.zeros(units))
        self._activation = activation(kind)

    def forward(self, values: Tensor, goals: Tensor) -> Tensor:
        """Computes the layer's activations."""
        found = nn.functional.layer_norm(self.hidden(goals), (self._units,))
        weights = self.weights(found).reshape(-1, self._inputs, self._units)
        sums = torch.matmul(values.reshape(-1, 1, self._inputs), weights).reshape(-1, self._units) + self.bias
        activated: Tensor = self._activation(sums)
        return activated
