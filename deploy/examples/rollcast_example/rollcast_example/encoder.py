"""An encoder of images: averages of cells and a linear layer."""

from __future__ import annotations

from rollcast.enums import ImageLayout
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.training.networks.initializers import Initializer

_CELL_PIXELS = 8


class Average(nn.Module):
    """Averages cells of 8 x 8 pixels and applies a linear layer.

    Args:
        spec: The observation.
        size: Width of the output.
        initializer: Draws the initial weights.
    """

    def __init__(self, spec: ObservationSpec, size: int, initializer: Initializer) -> None:
        super().__init__()
        self._channels_first = spec.layout == ImageLayout.CHW
        self._scale = spec.scale or 1.0
        height, width, channels = spec.shape if not self._channels_first else (*spec.shape[1:], spec.shape[0])
        self.pool = nn.AvgPool2d(_CELL_PIXELS)
        cells = (height // _CELL_PIXELS) * (width // _CELL_PIXELS) * channels
        self.dense = initializer.linear(cells, size, initializer.gains.encoded)

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, *shape]`` to ``[B, size]``."""
        planes = observation.float() if self._channels_first else observation.float().permute(0, 3, 1, 2)
        encoded: Tensor = self.dense(self.pool(planes / self._scale).flatten(1)).relu()
        return encoded
