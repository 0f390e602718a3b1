"""Linear layers with an activation after each, and their derivatives by hand.

The minibatches of on-policy trainers are small, and autograd's bookkeeping then costs as much as the arithmetic: without
it, forward and backward of a 2x64 actor and critic at 256 steps take three fifths of the time. So the layers that every
network has (these and the heads) can `record` a forward pass and go `backward` through it themselves; gradients are
written to the ``grad`` of each parameter. Everything else (convolutions, plug-ins) stays with autograd, and ``forward``
is an ordinary module's.
"""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from learner.networks.initializers import Initializer

Activation = Literal["swish", "tanh", "relu"]


def activation(name: Activation) -> nn.Module:
    """Makes the activation of that name; swish is x * sigmoid(x) (Ramachandran et al. 2017, arXiv:1710.05941)."""
    modules: dict[str, type[nn.Module]] = {"swish": nn.SiLU, "tanh": nn.Tanh, "relu": nn.ReLU}
    return modules[name]()


class DenseRecord(NamedTuple):
    """What the way back through `DenseLayers` needs, layer by layer.

    Attributes:
        inputs: what went into each layer, and last what came out: ``[B, width]``.
        sums: what went into each activation, for activations whose derivative needs it; else empty.
    """

    inputs: list[Tensor]
    sums: list[Tensor]


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
        self.kind = kind
        widths = [inputs] + [units] * count
        # A tuple beside the list: modules look up their submodules slowly, and these are needed at each minibatch.
        self._layers = tuple(
            initializer.linear(before, after, initializer.gains.hidden) for before, after in itertools.pairwise(widths)
        )
        self.linear = nn.ModuleList(self._layers)
        self._activation = activation(kind)

    def forward(self, values: Tensor) -> Tensor:
        """Computes the last layer's activations."""
        for layer in self._layers:
            values = self._activation(layer(values))
        return values

    def record(self, values: Tensor) -> tuple[Tensor, DenseRecord]:
        """Computes the same as `forward`, without autograd, and what `backward` needs."""
        found = DenseRecord([values], [])
        # torch's tanh on a CPU takes four times as long as its sigmoid; tanh(x) = 2 sigmoid(2 x) - 1.
        by_sigmoid = self.kind == "tanh" and values.device.type == "cpu"
        scale = 2 if by_sigmoid else 1
        for layer in self._layers:
            sums = torch.addmm(layer.bias, values, layer.weight.t(), beta=scale, alpha=scale)
            if self.kind == "swish":
                found.sums.append(sums)
                values = nn.functional.silu(sums)
            elif self.kind == "relu":
                values = sums.relu_()
            else:
                values = sums.sigmoid_().mul_(2.0).sub_(1.0) if by_sigmoid else sums.tanh_()
            found.inputs.append(values)
        return values, found

    def backward(self, record: DenseRecord, outer: Tensor, *, to_inputs: bool) -> Tensor | None:
        """Writes the gradient of every parameter.

        Args:
            record: of `record`.
            outer: the loss's derivative with respect to what came out, ``[B, units]``.
            to_inputs: whether the derivative with respect to what went in is wanted.

        Returns:
            That derivative ``[B, inputs]``, or None.
        """
        for index in reversed(range(len(self._layers))):
            layer = self._layers[index]
            if self.kind == "swish":
                inner = torch.ops.aten.silu_backward(outer, record.sums[index])
            elif self.kind == "relu":
                inner = torch.ops.aten.threshold_backward(outer, record.inputs[index + 1], 0.0)
            else:
                inner = torch.ops.aten.tanh_backward(outer, record.inputs[index + 1])
            linear_backward(layer, record.inputs[index], inner)
            if index or to_inputs:
                outer = inner.mm(layer.weight)
        return outer if to_inputs else None


def linear_backward(layer: nn.Linear, inputs: Tensor, outer: Tensor) -> None:
    """Writes the gradients of a linear layer.

    Args:
        layer: its parameters must have a ``grad``.
        inputs: what went in, ``[B, inputs]``.
        outer: the loss's derivative with respect to what came out, ``[B, outputs]``.
    """
    torch.mm(outer.t(), inputs, out=layer.weight.grad)
    torch.sum(outer, 0, out=layer.bias.grad)


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
