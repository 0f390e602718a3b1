"""Linear layers with activations, and layers whose weights depend on a goal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from learner.shared.settings.network import Activation
from learner.training.networks.initializers import Initializer

_MINUS_ONE = torch.tensor(-1.0)


def _by_sigmoid(values: Tensor) -> bool:
    """Returns whether tanh is computed as ``2 sigmoid(2 x) - 1``, up to eight times faster than torch's tanh on a CPU.

    Files for actors contain the tanh operator.
    """
    # Also on "meta", where minibatches are measured: this form keeps more than the operator does.
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
        "elu": nn.functional.elu,
        "selu": torch.selu,
        "leaky_relu": nn.functional.leaky_relu,
        "gelu": nn.functional.gelu,
    }
    return functions[name]


class DenseLayers(nn.Module):
    """Maps ``[B, inputs]`` to ``[B, size]``.

    Args:
        inputs: Width of the input.
        widths: Width of each layer; without layers, the result is the input.
        kind: Activation after each layer.
        initializer: Draws the initial weights.

    Attributes:
        size: Width of the result.
    """

    def __init__(self, inputs: int, widths: Sequence[int], kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        widths = (inputs, *widths)
        self.size = widths[-1]
        # A tuple in addition to the list: modules look up submodules slowly, and every minibatch needs these.
        self._layers = tuple(
            initializer.linear(before, after, initializer.gains.hidden) for before, after in itertools.pairwise(widths)
        )
        self.linear = nn.ModuleList(self._layers)
        self._kind = kind
        self._activation = activation(kind)

    def forward(self, values: Tensor) -> Tensor:
        """Computes the last layer's activations ``[B, size]``."""
        if self._kind == "tanh" and _by_sigmoid(values):
            for layer in self._layers:
                # The product doubles the sums as well.
                doubled = torch.addmm(layer.bias, values, layer.weight.t(), beta=2, alpha=2)
                values = torch.add(_MINUS_ONE, torch.sigmoid(doubled), alpha=2)
            return values
        for layer in self._layers:
            values = self._activation(linear(layer, values))
        return values


def linear(layer: nn.Linear, values: Tensor) -> Tensor:
    """Computes a linear layer, ``[B, outputs]``, without module dispatch, which costs as much as a small product."""
    return nn.functional.linear(values, layer.weight, layer.bias)


class ConditionedLayer(nn.Module):
    """Maps ``[B, inputs]`` and goals ``[B, goals]`` to ``[B, units]``, with separate weights for each row.

    Only the weights depend on the goal, through two layers of ``units`` with swish, a norm and a linear layer; the bias
    is an ordinary parameter.

    Args:
        inputs: Width of the input.
        units: Width of the result.
        goals: Width of the encoded goals.
        kind: Activation after the layer.
        initializer: Draws the initial weights.
    """

    def __init__(self, inputs: int, units: int, goals: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        self._inputs, self._units = inputs, units
        gain = initializer.gains.hidden
        self.hidden = nn.Sequential(
            initializer.linear(goals, units, gain), nn.SiLU(), initializer.linear(units, units, gain), nn.SiLU()
        )
        # After a norm, this bound gives generated weights a variance of 1 / (3 inputs).
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
