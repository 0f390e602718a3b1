"""Linear layers with an activation after each, as one step of the gradient's way.

The minibatches of PPO are small, and a chain of modules then spends more time in autograd's bookkeeping than in
arithmetic. `DenseLayers` computes the same numbers as ``nn.Sequential`` of linear layers and activations, and keeps
their parameter names, but registers one operation with autograd and derives the gradients itself.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from learner.networks.activations import Activation, activation
from learner.networks.initializers import Initializer


class DenseLayers(nn.Module):
    """``[B, inputs]`` to ``[B, units]``.

    Args:
        inputs: width of the input.
        units: width of each layer.
        count: number of layers, at least one.
        kind: the activation after each.
        initializer: where initial weights come from.
    """

    def __init__(self, inputs: int, units: int, count: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        self.kind = kind
        widths = [inputs] + [units] * count
        self.linear = nn.ModuleList(
            initializer.linear(before, after, initializer.gains.hidden) for before, after in itertools.pairwise(widths)
        )
        self._activation = activation(kind)

    def forward(self, values: Tensor) -> Tensor:
        """Computes the last layer's activations."""
        if torch.is_grad_enabled() and not torch.onnx.is_in_onnx_export():
            parameters = [parameter for layer in self.linear for parameter in (layer.weight, layer.bias)]
            trained: Tensor = _Dense.apply(values, self.kind, *parameters)  # type: ignore[no-untyped-call]
            return trained
        for layer in self.linear:
            values = self._activation(layer(values))
        return values


class _Dense(torch.autograd.Function):
    """The layers of `DenseLayers`; parameters come as weight, bias, weight, bias, ..."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, kind: Activation, *parameters: Tensor) -> Tensor:
        saved = [values]
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            sums = torch.addmm(bias, values, weight.t())
            values = torch.nn.functional.silu(sums) if kind == "swish" else _activated(sums, kind)
            # What the derivative is computed from: of swish the input, of the others the output.
            saved += [sums, values] if kind == "swish" else [values]
        ctx.kind = kind
        ctx.save_for_backward(*saved, *parameters[::2])
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        each = 2 if ctx.kind == "swish" else 1
        count = (len(tensors) - 1) // (each + 1)
        outer = gradients[0]
        found: list[Tensor | None] = []
        for layer in reversed(range(count)):
            inputs = tensors[layer * each]
            inner = _derived(outer, tensors[layer * each + 1], ctx.kind)
            found += [inner.sum(0), inner.t().mm(inputs)]
            if layer or ctx.needs_input_grad[0]:
                outer = inner.mm(tensors[1 + count * each + layer])
        return outer if ctx.needs_input_grad[0] else None, None, *reversed(found)


def _activated(sums: Tensor, kind: Activation) -> Tensor:
    """Applies tanh or relu in place. torch's tanh on a CPU takes four times as long as its sigmoid."""
    if kind == "relu":
        return sums.relu_()
    if sums.device.type == "cpu":
        return sums.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)
    return sums.tanh_()


def _derived(outer: Tensor, saved: Tensor, kind: Activation) -> Tensor:
    """Multiplies a gradient with the activation's derivative."""
    if kind == "swish":
        swish: Tensor = torch.ops.aten.silu_backward(outer, saved)
        return swish
    if kind == "relu":
        relu: Tensor = torch.ops.aten.threshold_backward(outer, saved, 0.0)
        return relu
    tanh: Tensor = torch.ops.aten.tanh_backward(outer, saved)
    return tanh
