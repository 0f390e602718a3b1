"""What the encoders of pictures make of a size: plain arithmetic, for the networks and for the check of a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollcast.enums import ImageLayout
from rollcast.specs import ObservationSpec

MIN_SIDE_PIXELS: Final[Mapping[str, int]] = MappingProxyType(
    {"simple": 20, "nature_cnn": 36, "resnet": 15, "match3": 5, "fully_connected": 1}
)
"""The smallest height and width each tower accepts."""

CONVOLUTIONS: Final[Mapping[str, tuple[tuple[int, int, int], ...]]] = MappingProxyType(
    {
        "simple": ((16, 8, 4), (32, 4, 2)),
        "nature_cnn": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        "match3": ((35, 3, 1), (144, 3, 1)),
        "fully_connected": (),
    }
)
"""Output channels, kernel and stride of each convolution of the plain towers."""

RESIDUAL_CHANNELS: Final = (16, 32, 32)
"""Of the stages of resnet; each ends in a pooling of `RESIDUAL_POOL` (kernel, stride)."""
RESIDUAL_POOL: Final = (3, 2)
RESIDUAL_CONVOLUTIONS: Final = 4
"""Of the two blocks of a stage, behind its first convolution."""


def picture_size(spec: ObservationSpec) -> tuple[int, int, int]:
    """Returns height, width and channels of a picture of either layout."""
    first, second, third = spec.shape
    return (second, third, first) if spec.layout == ImageLayout.CHW else (first, second, third)


def is_channels_first(spec: ObservationSpec) -> bool:
    """Says whether the planes of a picture are its first axis."""
    return spec.layout == ImageLayout.CHW


def picture_fault(spec: ObservationSpec, kind: str) -> str | None:
    """Says why a tower cannot take a picture, and what to do; None if it can."""
    height, width, _ = picture_size(spec)
    least = MIN_SIDE_PIXELS.get(kind, 1)  # an encoder of another package says for itself what it cannot take
    if min(height, width) >= least:
        return None
    return (
        f"observation {spec.name!r} is {height}x{width} pixels; vis_encode_type {kind} needs at least "
        f"{least} a side: choose a smaller one (fully_connected takes any size)"
    )


def encoded_size(spec: ObservationSpec, kind: str) -> int:
    """Returns how many numbers a tower makes of a picture that it can take, before its linear layer."""
    height, width, channels = picture_size(spec)
    if kind == "resnet":
        stages = tuple((outputs, *RESIDUAL_POOL) for outputs in RESIDUAL_CHANNELS)
    else:
        stages = CONVOLUTIONS.get(kind, ())
    for outputs, kernel, stride in stages:
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
        channels = outputs
    return height * width * channels


def convolution_parameters(spec: ObservationSpec, kind: str) -> int:
    """Counts the parameters of a tower's convolutions."""
    _, _, channels = picture_size(spec)
    if kind == "resnet":
        found = 0
        for outputs in RESIDUAL_CHANNELS:
            found += (9 * channels + 1) * outputs + RESIDUAL_CONVOLUTIONS * (9 * outputs + 1) * outputs
            channels = outputs
        return found
    found = 0
    for outputs, kernel, _ in CONVOLUTIONS.get(kind, ()):
        found += (kernel * kernel * channels + 1) * outputs
        channels = outputs
    return found
