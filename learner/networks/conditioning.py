"""A layer whose weights depend on the goal: a hyper-network makes them (Ha et al. 2016, arXiv:1609.09106)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from learner.networks.activations import Activation, activation
from learner.networks.initializers import Initializer


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
