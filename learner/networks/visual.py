"""Encoders of pictures and grids: the convolutional towers that ML-Agents' run files name."""

from __future__ import annotations

import torch
from rollcast.specs import ImageLayout, ObservationSpec
from torch import Tensor, nn

from learner.exits import ExitCode, UserError
from learner.networks.initializers import Initializer

MIN_SIDE_PIXELS = {"simple": 20, "nature_cnn": 36, "resnet": 15, "match3": 5, "fully_connected": 1}
"""The smallest height and width each tower accepts."""


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
        height, width, channels = spec.shape
        if self._channels_first:
            channels, height, width = spec.shape
        if min(height, width) < MIN_SIDE_PIXELS[kind]:
            raise UserError(
                ExitCode.RUN_FILE,
                f"observation {spec.name!r} is {height}x{width} pixels; vis_encode_type {kind} needs at least "
                f"{MIN_SIDE_PIXELS[kind]} a side: choose a smaller one (fully_connected takes any size)",
            )
        self.size = size
        self._factor = 1.0 / spec.scale if spec.scale else 1.0
        self.tower = _tower(kind, channels, initializer)
        with torch.no_grad():
            flat = self.tower(torch.zeros(1, channels, height, width)).shape[1]
        self.dense = initializer.linear(flat, size, initializer.gains.hidden)
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
    # (output channels, kernel, stride) of each convolution
    convolutions = {
        "simple": ((16, 8, 4), (32, 4, 2)),
        "nature_cnn": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        "match3": ((35, 3, 1), (144, 3, 1)),
        "fully_connected": (),
    }[kind]
    layers: list[nn.Module] = []
    for outputs, kernel, stride in convolutions:
        layers += [initializer.conv(channels, outputs, kernel, stride), nn.LeakyReLU()]
        channels = outputs
    return nn.Sequential(*layers, nn.Flatten())


def _residual_tower(channels: int, initializer: Initializer) -> nn.Sequential:
    layers: list[nn.Module] = []
    for outputs in (16, 32, 32):
        layers += [
            initializer.conv(channels, outputs, 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            _Residual(outputs, initializer),
            _Residual(outputs, initializer),
        ]
        channels = outputs
    return nn.Sequential(*layers, nn.SiLU(), nn.Flatten())
