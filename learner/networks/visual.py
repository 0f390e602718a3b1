"""Encoders of pictures and grids: the convolutional towers that ML-Agents' run files name."""

from __future__ import annotations

import torch
from rollcast.specs import ImageLayout, ObservationSpec
from torch import Tensor, nn

from learner.common.exits import ExitCode, UserError
from learner.networks.initializers import Initializer
from learner.sizing.networks import (
    CONVOLUTIONS,
    RESIDUAL_CHANNELS,
    RESIDUAL_POOL,
    encoded_size,
    picture_fault,
    picture_size,
)


class ImageEncoder(nn.Module):
    """A picture ``[B, H, W, C]`` or ``[B, C, H, W]`` to ``[B, hidden_units]``.

    Args:
        spec: the observation; `scale` is what shall be seen as 1.0, `layout` the order of its axes (HWC unless CHW).
        kind: which tower.
        size: width of the result.
        initializer: where initial weights come from.

    Raises:
        UserError: the picture is smaller than the tower allows.
    """

    def __init__(self, spec: ObservationSpec, kind: str, size: int, initializer: Initializer) -> None:
        super().__init__()
        self._channels_first = spec.layout == ImageLayout.CHW
        _, _, channels = picture_size(spec)
        fault = picture_fault(spec, kind)
        if fault is not None:
            raise UserError(ExitCode.RUN_FILE, fault)
        self.size = size
        self._factor = 1.0 / spec.scale if spec.scale else 1.0
        self.tower = _tower(kind, channels, initializer)
        self.dense = initializer.linear(encoded_size(spec, kind), size, initializer.gains.encoded)
        self.activation = nn.ReLU() if kind == "resnet" else nn.LeakyReLU()

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes pixels of any numeric type to ``[B, size]``."""
        pixels = observation if self._channels_first else observation.permute(0, 3, 1, 2)
        values = pixels.to(torch.float32)
        if self._factor != 1.0:
            values = values * self._factor
        encoded: Tensor = self.activation(self.dense(self.tower(values)))
        return encoded


class _Residual(nn.Module):
    """Two 3x3 convolutions beside a skip (He et al. 2016, arXiv:1603.05027; the blocks of IMPALA, arXiv:1802.01561)."""

    def __init__(self, channels: int, initializer: Initializer) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.SiLU(),
            initializer.conv(channels, channels, 3, padding=1),
            nn.SiLU(),
            initializer.conv(channels, channels, 3, padding=1),
        )

    def forward(self, values: Tensor) -> Tensor:
        """Adds the block's result to its input ``[B, C, H, W]``."""
        changed: Tensor = self.layers(values)
        return values + changed


def _tower(kind: str, channels: int, initializer: Initializer) -> nn.Sequential:
    if kind == "resnet":
        return _residual_tower(channels, initializer)
    layers: list[nn.Module] = []
    for outputs, kernel, stride in CONVOLUTIONS[kind]:
        layers += [initializer.conv(channels, outputs, kernel, stride), nn.LeakyReLU()]
        channels = outputs
    return nn.Sequential(*layers, nn.Flatten())


def _residual_tower(channels: int, initializer: Initializer) -> nn.Sequential:
    layers: list[nn.Module] = []
    for outputs in RESIDUAL_CHANNELS:
        layers += [
            initializer.conv(channels, outputs, 3, padding=1),
            nn.MaxPool2d(*RESIDUAL_POOL),
            _Residual(outputs, initializer),
            _Residual(outputs, initializer),
        ]
        channels = outputs
    return nn.Sequential(*layers, nn.SiLU(), nn.Flatten())
