"""Encoders: convert one observation from its wire form to values that the body can concatenate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from rollcast.enums import ObservationKind, ObservationRole
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.settings.network import VISUAL_ENCODERS, NetworkSettings
from learner.training.networks.attention import EntityAttention, side_by_side
from learner.training.networks.initializers import Initializer
from learner.training.networks.normalizer import Normalizer, RunningMoments
from learner.training.networks.observations import ObservationError, is_entities, is_picture
from learner.training.networks.visual import AddedEncoder, ImageEncoder


class VectorEncoder(nn.Module):
    """Encodes numbers of any shape: flattens, scales, and normalizes them if the run file requests it.

    It is also the fallback for shapes without another encoder.

    Args:
        spec: The observation.
        clip: Largest size of a normalized value; None does not normalize.
    """

    def __init__(self, spec: ObservationSpec, clip: float | None = None) -> None:
        super().__init__()
        self.size = math.prod(spec.shape)
        self._factor = 1.0 / spec.scale if spec.scale else 1.0
        self.normalizer = None if clip is None else Normalizer(self.size, clip)

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, *shape]`` to ``[B, size]``."""
        values = self.scaled(observation)
        if self.normalizer is None:
            return values
        normalized: Tensor = self.normalizer(values)
        return normalized

    def scaled(self, observation: Tensor) -> Tensor:
        """Casts, flattens and scales ``[B, *shape]`` to ``[B, size]``, the input of the normalizer."""
        values = observation.to(torch.float32)
        if values.dim() != 2:
            values = values.reshape(-1, self.size)
        return values if self._factor == 1.0 else values * self._factor


class CategoricalEncoder(nn.Module):
    """Encodes integers as concatenated one-hot blocks; a value outside its categories is a block of zeros.

    Args:
        categories: Number of values of each element.
    """

    codes: Tensor
    columns: Tensor

    def __init__(self, categories: tuple[int, ...]) -> None:
        super().__init__()
        self.size = sum(categories)
        # Column c of the output compares element columns[c] with codes[c]: one comparison without a loop over elements.
        counts = torch.tensor(categories, dtype=torch.int64)
        columns = torch.repeat_interleave(counts, output_size=self.size)
        codes = torch.arange(self.size) - (counts.cumsum(0) - counts).index_select(0, columns)
        self.register_buffer("codes", codes, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Encodes ``[B, elements]`` of any integer type to ``[B, sum(categories)]``."""
        values = observation.to(torch.int64).reshape(observation.shape[0], -1)
        return (values.index_select(1, self.columns) == self.codes).to(torch.float32)


Encoder = VectorEncoder | CategoricalEncoder | ImageEncoder | AddedEncoder


def build_encoder(spec: ObservationSpec, settings: NetworkSettings, initializer: Initializer) -> Encoder:
    """Chooses the encoder of an observation.

    Raises:
        ObservationError: An image is too small for the encoder that the run file names, or a list of entities has
            no entities, no numbers, or another number of axes.
        UserError: The encoder of a package cannot be built.
    """
    if spec.kind is ObservationKind.ENTITIES:  # attention reads a list with two axes
        raise ObservationError(
            f"observation {spec.name!r} is a list of entities of shape {list(spec.shape)}; it must be [max, size], "
            "both above 0",
            spec.name,
        )
    if spec.kind == ObservationKind.CATEGORICAL and len(spec.categories) == math.prod(spec.shape):
        return CategoricalEncoder(spec.categories)
    if is_picture(spec):
        kind = ImageEncoder if settings.vis_encode_type in VISUAL_ENCODERS else AddedEncoder
        return kind(spec, settings.vis_encode_type, settings.widths[0], initializer)
    normalize = settings.normalize and spec.kind == ObservationKind.VECTOR and len(spec.shape) == 1
    return VectorEncoder(spec, settings.observation_clip if normalize else None)


class Encoded(NamedTuple):
    """All encoded observations.

    Attributes:
        values: ``[B, size]``.
        goals: ``[B, goal_size]``, the part that comes from goals; None if the body does not use it.
    """

    values: Tensor
    goals: Tensor | None

    def detach(self) -> Encoded:
        """Returns the encoded observations without their gradients."""
        return Encoded(self.values.detach(), None if self.goals is None else self.goals.detach())


class ObservationEncoder(nn.Module):
    """Encodes and concatenates all observations of a behavior; the summary of entity lists is last.

    Args:
        specs: The observations, in the order in which they arrive.
        settings: The network block of the run file.
        initializer: Draws the initial weights.
        reads: Indices of the observations to encode; None encodes all. The others are ignored.

    Raises:
        ObservationError: An observation has no encoder, or is a goal of variable length that must condition the body.
        UserError: The encoder of a package cannot be built.
    """

    def __init__(
        self,
        specs: tuple[ObservationSpec, ...],
        settings: NetworkSettings,
        initializer: Initializer,
        reads: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        places = range(len(specs)) if reads is None else reads
        self._lists = tuple(index for index in places if is_entities(specs[index]) and specs[index].size)
        self._fixed = tuple(index for index in places if index not in self._lists)
        encoders = [build_encoder(specs[index], settings, initializer) for index in self._fixed]
        self.encoders = nn.ModuleList(encoders)
        fixed = sum(encoder.size for encoder in encoders)
        self.attention = (
            EntityAttention([specs[index] for index in self._lists], fixed, settings.activation, initializer)
            if self._lists
            else None
        )
        self.size = fixed + (self.attention.size if self.attention else 0)
        self._goals = _goals(specs, self._lists, self._fixed) if settings.goal_conditioning_type == "hyper" else ()
        self.goal_size = sum(encoders[place].size for place in self._goals)
        self.normalizing = {
            index: encoder
            for index, encoder in zip(self._fixed, encoders, strict=True)
            if isinstance(encoder, VectorEncoder) and encoder.normalizer is not None
        }

    def forward(self, observations: list[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, size]``."""
        return self.encode(observations).values

    def encode(self, observations: list[Tensor]) -> Encoded:
        """Encodes ``[B, *shape]`` of each observation, and goals separately if they condition the body."""
        encoded = [encoder(observations[index]) for index, encoder in zip(self._fixed, self.encoders, strict=True)]
        goals = side_by_side([encoded[place] for place in self._goals]) if self._goals else None
        if self.attention is not None:
            fixed = side_by_side(encoded) if encoded else None
            encoded.append(self.attention([observations[index] for index in self._lists], fixed))
        return Encoded(side_by_side(encoded), goals)


def _goals(specs: tuple[ObservationSpec, ...], lists: tuple[int, ...], fixed: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the indices of goals among the encoders.

    Raises:
        ObservationError: A goal is a list of entities.
    """
    for spec in (specs[index] for index in lists):
        if spec.role is ObservationRole.GOAL:
            raise ObservationError(
                f"observation {spec.name!r} is a goal and a list of up to {spec.shape[0]} entities, but "
                "goal_conditioning_type hyper (the default) supports only goals of fixed length: send the goal as a "
                "vector, or set network_settings.goal_conditioning_type: none to read it like other lists of "
                "entities",
                spec.name,
            )
    return tuple(place for place, index in enumerate(fixed) if specs[index].role is ObservationRole.GOAL)


class EncoderStatistics:
    """The float64 statistics of the observations that encoders normalize; encoders of one observation share them.

    Args:
        encoders: Normalizing encoders, each with the index of its observation.
        device: Device of the networks.
    """

    def __init__(self, encoders: Sequence[tuple[int, VectorEncoder]], device: torch.device) -> None:
        self._encoders = encoders
        self._moments = {index: RunningMoments(encoder.size, device) for index, encoder in encoders}

    def publish(self) -> None:
        """Copies the statistics to the networks."""
        for index, encoder in self._encoders:
            if encoder.normalizer is not None:
                encoder.normalizer.publish(self._moments[index])

    def state_dict(self) -> dict[str, Any]:
        """Returns the statistics by index of the observation."""
        return {str(index): moments.state_dict() for index, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads saved statistics; the networks' copies are part of the networks.

        Raises:
            KeyError, ValueError: The statistics belong to other observations.
        """
        for index, moments in self._moments.items():
            moments.load_state_dict(state[str(index)])
