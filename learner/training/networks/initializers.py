"""Creates layers with chosen initial weights, drawn from a separate generator.

Three families (``network_settings.initialization``): ``kaiming`` (He et al. 2015, arXiv:1502.01852, equation 10; heads
scaled down by ML-Agents' gains); ``lecun`` (LeCun et al. 1998, "Efficient BackProp", equation 16; weights smaller by
the square root of two), as in ML-Agents 1.1.0, whose convolutions have torch's own initial weights; and ``orthogonal``
(Saxe et al. 2013, arXiv:1312.6120), the usual choice for PPO on small control tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

Initialization = Literal["kaiming", "lecun", "orthogonal"]

_Layer = TypeVar("_Layer", nn.Linear, nn.Conv2d)


@dataclass(frozen=True, slots=True)
class Gains:
    """Factors on the initial weights of each kind of layer."""

    hidden: float
    encoded: float
    """Gain of the linear layer after convolutions."""
    mean: float
    logits: float
    value: float


_GAINS = {
    "kaiming": Gains(hidden=1.0, encoded=1.0, mean=0.2, logits=0.1, value=1.0),
    "lecun": Gains(hidden=1.0, encoded=math.sqrt(2.0), mean=0.2, logits=0.1, value=1.0),
    "orthogonal": Gains(hidden=math.sqrt(2.0), encoded=math.sqrt(2.0), mean=0.01, logits=0.01, value=1.0),
}


class Initializer:
    """Creates layers with weights from ``generator``, so that no global random state is read or changed.

    Layers are on torch's default device. Under ``torch.device("meta")`` they have shapes without numbers, and nothing
    is drawn.

    Args:
        kind: Family of initial weights.
        generator: Source of random numbers; None uses torch's default generator.
    """

    def __init__(self, kind: Initialization, generator: torch.Generator | None = None) -> None:
        self.kind = kind
        self.gains = _GAINS[kind]
        self._generator = generator

    def linear(self, inputs: int, outputs: int, gain: float) -> nn.Linear:
        """Creates a linear layer ``[B, inputs] -> [B, outputs]`` with a bias of zero."""
        return self._fill(nn.Linear(inputs, outputs, device="meta"), self._main, gain)

    def value(self, inputs: int, outputs: int) -> nn.Linear:
        """Creates a linear layer for values: Xavier-uniform (Glorot and Bengio 2010), or orthogonal in that family."""
        fill = nn.init.orthogonal_ if self.kind == "orthogonal" else nn.init.xavier_uniform_
        return self._fill(nn.Linear(inputs, outputs, device="meta"), fill, self.gains.value)

    def uniform(self, inputs: int, outputs: int, bound: float) -> nn.Linear:
        """Creates a linear layer with weights within ``bound`` of zero, in every family, and a bias of zero."""
        return self._fill(nn.Linear(inputs, outputs, device="meta"), partial(nn.init.uniform_, a=-bound, b=bound), 1.0)

    def gates(self, gates: int, inputs: int, units: int) -> Tensor:
        """Creates the weights of a recurrent layer's gates, ``[gates * units, inputs]``, each gate drawn separately.

        Xavier-uniform, as in ML-Agents, or orthogonal in that family.
        """
        fill = nn.init.orthogonal_ if self.kind == "orthogonal" else nn.init.xavier_uniform_
        weights = torch.empty(gates * units, inputs)
        for part in torch.split(weights, units):
            fill(part, generator=self._generator)
        return weights

    def conv(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, *, gain: float | None = None
    ) -> nn.Conv2d:
        """Creates a convolution ``[B, inputs, H, W] -> [B, outputs, H', W']``.

        Its bias is zero except for hidden layers of ``lecun``.

        Args:
            inputs: Number of channels.
            outputs: Number of filters.
            kernel: Side of a filter.
            stride: Pixels between filters.
            padding: Zeros around the picture.
            gain: Factor on the initial weights; None is that of hidden layers.
        """
        layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, device="meta")
        if gain is not None:
            return self._fill(layer, self._main, gain)
        if self.kind == "lecun":
            self._fill(layer, partial(nn.init.kaiming_uniform_, a=math.sqrt(5.0)), 1.0)
            bound = 1.0 / math.sqrt(inputs * kernel * kernel)
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -bound, bound, generator=self._generator)
            return layer
        return self._fill(layer, self._main, self.gains.hidden)

    @property
    def _main(self) -> Callable[..., Tensor]:
        if self.kind == "lecun":
            return partial(nn.init.kaiming_normal_, nonlinearity="linear")
        return nn.init.orthogonal_ if self.kind == "orthogonal" else nn.init.kaiming_normal_

    def _fill(self, layer: _Layer, fill: Callable[..., Tensor], gain: float) -> _Layer:
        # Created on "meta", so that torch's initialization draws no random numbers.
        device = torch.get_default_device()
        if device.type == "meta":
            return layer
        layer.to_empty(device=device)
        fill(layer.weight, generator=self._generator)
        with torch.no_grad():
            layer.weight.mul_(gain)
            if layer.bias is not None:
                layer.bias.zero_()
        return layer
