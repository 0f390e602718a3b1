"""Encoders of images and grids: the convolutional towers named in ML-Agents' run files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import structlog
import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.exits import ExitCode, UserError
from learner.shared.plugins import make
from learner.shared.settings.extensions import ENCODERS, load
from learner.shared.settings.network import NetworkSettings
from learner.training.networks.initializers import Initializer
from learner.training.networks.observations import ObservationError, is_channels_first, is_picture, picture_size

log = structlog.get_logger(__name__)

MIN_SIDE_PIXELS: Final[Mapping[str, int]] = MappingProxyType(
    {"simple": 20, "nature_cnn": 36, "resnet": 15, "match3": 5, "fully_connected": 1}
)
"""The smallest height and width each tower accepts."""

DEFAULT_TOWER: Final = "simple"
SMALLER: Final = ("match3", "fully_connected")
"""Towers that take the default's place on images that are too small for it, such as boards."""

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
"""Channels of the stages of resnet; each ends with a pooling of `RESIDUAL_POOL` (kernel, stride)."""
RESIDUAL_POOL: Final = (3, 2)


def encoded_size(spec: ObservationSpec, kind: str) -> int:
    """Returns the number of values that a tower computes from a supported image before its linear layer."""
    height, width, channels = picture_size(spec)
    if kind == "resnet":
        stages = tuple((outputs, *RESIDUAL_POOL) for outputs in RESIDUAL_CHANNELS)
    else:
        stages = CONVOLUTIONS[kind]
    for outputs, kernel, stride in stages:
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
        channels = outputs
    return height * width * channels


def fitting_tower(spec: ObservationSpec, kind: str) -> str:
    """Returns the tower for an image: the named one, or in place of the default the first of `SMALLER` that fits.

    Raises:
        ObservationError: The image is smaller than the named tower accepts.
    """
    height, width, _ = picture_size(spec)
    side = min(height, width)
    if side >= MIN_SIDE_PIXELS[kind]:
        return kind
    if kind == DEFAULT_TOWER:
        return next(smaller for smaller in SMALLER if side >= MIN_SIDE_PIXELS[smaller])
    fitting = ", ".join(name for name, least in MIN_SIDE_PIXELS.items() if side >= least)
    raise ObservationError(
        f"observation {spec.name!r} is {height}x{width} pixels; vis_encode_type {kind} needs at least "
        f"{MIN_SIDE_PIXELS[kind]} pixels on each side: choose one that fits ({fitting}), or remove the key",
        spec.name,
    )


def log_fitting_towers(behavior: str, specs: Iterable[ObservationSpec], settings: NetworkSettings) -> None:
    """Logs in one line which images get a smaller tower than the default."""
    if settings.tower is not None or settings.vis_encode_type != DEFAULT_TOWER:
        return
    fitted = {spec.name: fitting_tower(spec, DEFAULT_TOWER) for spec in specs if is_picture(spec)}
    smaller = {name: tower for name, tower in fitted.items() if tower != DEFAULT_TOWER}
    if smaller:
        least = MIN_SIDE_PIXELS[DEFAULT_TOWER]
        log.info(
            "image_encoder_chosen",
            behavior=behavior,
            encoders=", ".join(f"{name}: {tower}" for name, tower in smaller.items()),
            reason=f"{DEFAULT_TOWER} needs {least} pixels on each side; network_settings.vis_encode_type chooses another",
        )


class ImageEncoder(nn.Module):
    """Encodes an image ``[B, H, W, C]`` or ``[B, C, H, W]`` as ``[B, hidden_units]``.

    Args:
        spec: The observation; `scale` is the value that maps to 1.0, `layout` the order of its axes (HWC unless CHW).
        kind: Name of the tower.
        size: Width of the result.
        initializer: Draws the initial weights.

    Raises:
        ObservationError: See `fitting_tower`.
    """

    def __init__(self, spec: ObservationSpec, kind: str, size: int, initializer: Initializer) -> None:
        super().__init__()
        self._channels_first = is_channels_first(spec)
        _, _, channels = picture_size(spec)
        kind = fitting_tower(spec, kind)
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
    """Two 3x3 convolutions with a skip (He et al. 2016, arXiv:1603.05027; the blocks of IMPALA, arXiv:1802.01561)."""

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


class AddedEncoder(nn.Module):
    """Encodes an image with a user's module: ``[B, *shape]``, in wire form, to ``[B, size]``.

    What the run file names is called with the observation's spec, the required width and an `Initializer`, and returns a
    module. The module becomes part of ONNX files, so its operations must be expressible there. It is also
    called under ``torch.device("meta")`` to measure the module's size: tensors without an explicit device take no memory
    there.

    Args:
        spec: The observation.
        kind: ``module:callable``, or the name of an entry point.
        size: Width of the result.
        initializer: Draws the initial weights.

    Raises:
        UserError: The module cannot be imported or created, or returns something else.
    """

    def __init__(self, spec: ObservationSpec, kind: str, size: int, initializer: Initializer) -> None:
        super().__init__()
        self.size = size
        setting = "network_settings.vis_encode_type"
        self.encoder = added_module(setting, kind, ENCODERS, lambda factory: factory(spec, size, initializer))
        require_rows(setting, kind, self.encoder, example_of(spec), size)

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, *shape]`` of the wire type as ``[B, size]`` float32."""
        encoded: Tensor = self.encoder(observation)
        return encoded


def added_module(setting: str, name: str, group: str, call: Callable[[Callable[..., Any]], Any]) -> nn.Module:
    """Makes a user's part of a network, on torch's default device.

    Args:
        setting: Setting that names it, for messages.
        name: ``module:callable``, or the name of an entry point.
        group: Group of the entry points.
        call: Calls what the name refers to.

    Raises:
        UserError: It cannot be imported or created, or is no module.
    """
    factory = load(setting, name, group)
    made = make(setting, name, lambda: call(factory))
    if not isinstance(made, nn.Module):
        raise UserError(ExitCode.RUN_FILE, f"{setting} names {name!r}, which does not create a torch.nn.Module")
    return made.to(torch.get_default_device())  # for example, tensors that it read from a file


def example_of(spec: ObservationSpec) -> Tensor:
    """Returns zeros of two steps of an observation, in wire form."""
    return torch.zeros(2, *spec.shape, dtype=getattr(torch, spec.dtype.name))


def require_rows(setting: str, name: str, module: nn.Module, example: Tensor | list[Tensor], size: int | None) -> int:
    """Computes a user's part of a network for two steps, and returns the width of the result.

    Args:
        setting: Setting that names it, for messages.
        name: Its name there.
        module: The part.
        example: Its input.
        size: The required width; None takes any.

    Raises:
        UserError: It fails, or the result is not ``[2, size]`` float32.
    """
    with torch.no_grad():
        made = make(setting, name, lambda: module(example))
    if isinstance(made, Tensor) and made.dtype == torch.float32 and made.dim() == 2:
        rows, width = made.shape
        if rows == 2 and width and size in {None, width}:
            return width
    shown = f"{list(made.shape)} {made.dtype}" if isinstance(made, Tensor) else f"a value of type {type(made).__name__}"
    seen = [list(each.shape) for each in example] if isinstance(example, list) else list(example.shape)
    raise UserError(
        ExitCode.RUN_FILE,
        f"{setting} names {name!r}, which turns {seen} into {shown}: the result must be [2, {size or 'any width'}] torch.float32",
    )
