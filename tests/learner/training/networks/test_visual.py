"""Tests encoders of images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rollcast.enums import ImageLayout

from learner.shared.exits import ExitCode, UserError
from learner.training.networks.initializers import Initializer
from learner.training.networks.observations import ObservationError
from learner.training.networks.visual import DEFAULT_TOWER, MIN_SIDE_PIXELS, ImageEncoder, encoded_size, fitting_tower
from tests.learner.training.networks.specs import image


def make_encoder(kind: str = "simple", **changes: Any) -> ImageEncoder:
    """Returns an encoder with fixed weights."""
    return ImageEncoder(image(**changes), kind, 6, Initializer("kaiming", torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("kind", sorted(MIN_SIDE_PIXELS))
def test_every_tower_takes_its_smallest_picture(kind: str) -> None:
    """The documented smallest side works, and one pixel less is refused with both numbers."""
    side = MIN_SIDE_PIXELS[kind]
    encoder = make_encoder(kind, shape=(side, side, 3))
    assert encoder(torch.zeros(2, side, side, 3, dtype=torch.uint8)).shape == (2, 6)
    if side > 1 and kind != DEFAULT_TOWER:
        with pytest.raises(
            UserError, match=rf"{side - 1}x{side} pixels.*at least {side} pixels on each side"
        ) as caught:
            make_encoder(kind, shape=(side - 1, side, 3))
        assert caught.value.exit_code is ExitCode.RUN_FILE


@pytest.mark.parametrize("kind", sorted(MIN_SIDE_PIXELS))
@pytest.mark.parametrize("layout", [ImageLayout.HWC, ImageLayout.CHW])
def test_towers_make_as_many_numbers_as_was_computed(kind: str, layout: ImageLayout) -> None:
    """The size after an encoder equals the computed one for any shape and layout."""
    for height, width in ((36, 36), (37, 52), (84, 63)):
        shape = (2, height, width) if layout == ImageLayout.CHW else (height, width, 2)
        encoder = make_encoder(kind, shape=shape, layout=layout)
        pixels = torch.zeros(1, 2, height, width)
        assert encoder.tower(pixels).shape[1] == encoded_size(image(shape=shape, layout=layout), kind)


def test_layouts_agree() -> None:
    """HWC and CHW give equal results for the same image."""
    pixels = torch.randint(0, 256, (2, 24, 28, 3), dtype=torch.uint8)
    last = make_encoder()
    first = make_encoder(shape=(3, 24, 28), layout=ImageLayout.CHW)
    assert torch.allclose(last(pixels), first(pixels.permute(0, 3, 1, 2)), atol=1e-6)


def test_bytes_are_scaled() -> None:
    """Bytes with scale 255 equal floats with scale 1."""
    pixels = torch.randint(0, 256, (2, 24, 28, 3), dtype=torch.uint8)
    floats = make_encoder(scale=0.0)
    assert torch.allclose(floats(pixels / 255.0), make_encoder()(pixels), atol=1e-5)


@pytest.mark.parametrize("side", range(1, 41))
@pytest.mark.parametrize("layout", [ImageLayout.HWC, ImageLayout.CHW])
def test_the_default_takes_images_of_every_size(side: int, layout: ImageLayout) -> None:
    """Without a choice of the user boards and other small images get the largest tower that fits."""
    for height, width in ((side, side), (side, 40), (40, side)):
        shape = (2, height, width) if layout == ImageLayout.CHW else (height, width, 2)
        encoder = make_encoder(shape=shape, layout=layout)
        assert encoder(torch.zeros(3, *shape, dtype=torch.uint8)).shape == (3, 6)
        spec = image(shape=shape, layout=layout)
        expected = "simple" if side >= 20 else "match3" if side >= 5 else "fully_connected"
        assert fitting_tower(spec, DEFAULT_TOWER) == expected


@pytest.mark.parametrize(
    ("kind", "side", "fitting"),
    [
        ("nature_cnn", 20, "simple, resnet, match3, fully_connected"),
        ("nature_cnn", 8, "match3, fully_connected"),
        ("resnet", 14, "match3, fully_connected"),
        ("match3", 4, "fully_connected"),
    ],
)
def test_a_chosen_tower_that_is_too_large_names_those_that_fit(kind: str, side: int, fitting: str) -> None:
    """A user's choice is not replaced: the error has the choices there are."""
    with pytest.raises(ObservationError, match=rf"choose one that fits \({fitting}\)"):
        make_encoder(kind, shape=(side, 40, 3))
