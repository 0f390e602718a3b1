"""Encoders of pictures and grids: the convolutional towers that ML-Agents' run files name."""

from __future__ import annotations

import numpy as np
import torch
from rollcast.specs import ImageLayout, ObservationSpec
from torch import Tensor, nn

from learner.common.exits import ExitCode, UserError
from learner.common.plugins import make
from learner.networks.initializers import Initializer
from learner.settings.extensions import ENCODERS, load
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


_SETTING = "network_settings.vis_encode_type"


class AddedEncoder(nn.Module):
    """What a package makes of a picture: ``[B, *shape]``, as on the wire, to ``[B, size]``.

    The entry point is called with the observation's spec, the width that is wanted and an `Initializer`, and returns a
    module. It becomes part of ONNX files: what it does must be expressible there.

    Args:
        spec: the observation.
        kind: the name of the entry point.
        size: width of the result.
        initializer: where initial weights come from.

    Raises:
        UserError: it cannot be imported or made, or makes something else.
    """

    def __init__(self, spec: ObservationSpec, kind: str, size: int, initializer: Initializer) -> None:
        super().__init__()
        self.size = size
        factory = load(_SETTING, kind, ENCODERS)
        self.encoder = make(_SETTING, kind, lambda: factory(spec, size, initializer))
        if not isinstance(self.encoder, nn.Module):
            raise UserError(ExitCode.RUN_FILE, f"{_SETTING} names {kind!r}, which makes no torch.nn.Module")
        example = torch.zeros(2, *spec.shape, dtype=torch.from_numpy(np.zeros(0, spec.dtype)).dtype)
        with torch.no_grad():
            made = tuple(make(_SETTING, kind, lambda: self.encoder(example)).shape)
        if made != (2, size):
            raise UserError(
                ExitCode.RUN_FILE,
                f"{_SETTING} names {kind!r}, which makes {list(made)} of {list(example.shape)}: it must be [2, {size}]",
            )

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, *shape]`` of the wire's type to ``[B, size]`` float32."""
        encoded: Tensor = self.encoder(observation)
        return encoded
