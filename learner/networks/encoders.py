"""Encoders: one observation, as it is on the wire, to numbers the body can add to the others."""

from __future__ import annotations

import math

import torch
from rollcast.specs import ObservationKind, ObservationSpec
from torch import Tensor, nn

from learner.networks.initializers import Initializer
from learner.networks.normalizer import Normalizer
from learner.networks.visual import ImageEncoder
from learner.settings.network import NetworkSettings


class VectorEncoder(nn.Module):
    """Numbers in any shape, flattened, scaled, and normalized if the run file asks for it.

    Also the fallback for shapes that no other encoder knows.

    Args:
        spec: the observation.
        normalize: whether a normalizer is put behind.
    """

    def __init__(self, spec: ObservationSpec, normalize: bool) -> None:
        super().__init__()
        self.size = math.prod(spec.shape)
        self._factor = 1.0 / spec.scale if spec.scale else 1.0
        self.normalizer = Normalizer(self.size) if normalize else None

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, *shape]`` to ``[B, size]``."""
        values = self.scaled(observation)
        if self.normalizer is None:
            return values
        normalized: Tensor = self.normalizer(values)
        return normalized

    def scaled(self, observation: Tensor) -> Tensor:
        """Casts, flattens and scales ``[B, *shape]`` to ``[B, size]``: what the normalizer sees."""
        values = observation.to(torch.float32)
        if values.dim() != 2:
            values = values.reshape(-1, self.size)
        return values if self._factor == 1.0 else values * self._factor


class CategoricalEncoder(nn.Module):
    """Integers as one-hot blocks, side by side; a value outside its categories is a block of zeros.

    Args:
        categories: how many values each element has.
    """

    codes: Tensor
    columns: Tensor

    def __init__(self, categories: tuple[int, ...]) -> None:
        super().__init__()
        self.size = sum(categories)
        # Column c of the output asks: is element columns[c] equal to codes[c]? One comparison, no loop over elements.
        codes = torch.cat([torch.arange(count) for count in categories])
        columns = torch.cat([torch.full((count,), element) for element, count in enumerate(categories)])
        self.register_buffer("codes", codes, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, elements]`` of any integer type to ``[B, sum(categories)]``."""
        values = observation.to(torch.int64).reshape(observation.shape[0], -1)
        return (values.index_select(1, self.columns) == self.codes).to(torch.float32)


Encoder = VectorEncoder | CategoricalEncoder | ImageEncoder


def build_encoder(spec: ObservationSpec, settings: NetworkSettings, initializer: Initializer) -> Encoder:
    """Chooses the encoder of an observation.

    Raises:
        UserError: an image is too small for the encoder that the run file names.
    """
    if spec.kind == ObservationKind.CATEGORICAL and len(spec.categories) == math.prod(spec.shape):
        return CategoricalEncoder(spec.categories)
    if spec.kind == ObservationKind.IMAGE and len(spec.shape) == 3:
        return ImageEncoder(spec, settings.vis_encode_type, settings.hidden_units, initializer)
    normalize = settings.normalize and spec.kind == ObservationKind.VECTOR and len(spec.shape) == 1
    return VectorEncoder(spec, normalize)


class ObservationEncoder(nn.Module):
    """All observations of a behavior, encoded and side by side.

    Args:
        specs: the observations, in the order in which they arrive.
        settings: the network block of the run file.
        initializer: where initial weights come from.
    """

    def __init__(self, specs: tuple[ObservationSpec, ...], settings: NetworkSettings, initializer: Initializer) -> None:
        super().__init__()
        encoders = [build_encoder(spec, settings, initializer) for spec in specs]
        self.encoders = nn.ModuleList(encoders)
        self.size = sum(encoder.size for encoder in encoders)
        self.normalizing = {
            index: encoder
            for index, encoder in enumerate(encoders)
            if isinstance(encoder, VectorEncoder) and encoder.normalizer is not None
        }

    def forward(self, observations: list[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, size]``."""
        encoded = [encoder(value) for encoder, value in zip(self.encoders, observations, strict=True)]
        return encoded[0] if len(encoded) == 1 else torch.cat(encoded, dim=1)
