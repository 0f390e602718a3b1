"""The body: encoders, linear layers with activations (the last can depend on goals), or a user's module; and an optional memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.dense import ConditionedLayer, DenseLayers
from learner.training.networks.encoders import Encoded
from learner.training.networks.initializers import Initializer
from learner.training.networks.lstm import Memory, Unrolled
from learner.training.networks.observing import AddedBody, build_observer
from learner.training.networks.tower import BoardEncoder
from learner.training.networks.visual import AddedEncoder

Needed = TypeVar("Needed")


class Body(nn.Module):
    """Computes ``[B, size]`` from observations.

    Args:
        specs: The observations, in the order in which they arrive.
        settings: The network block of the run file.
        initializer: Draws the initial weights.
        reads: Indices of the observations that it reads; None reads all. The others are ignored.

    Raises:
        UserError: The settings do not support the observations.

    Attributes:
        size: Width of the output: that of the last layer or of the user's module, half of the memory's size, or the values of
            a tower's planes.
        memory: The recurrent part; None without memory.
        planes: Shape of the output of a residual tower; None without a tower.
        reads: Indices of the observations that it reads.
        encodes_alike: Whether the encoder computes the same as that of any other body that reads the same
            observations: it has no weights, and no part of a user, whose content may be random.
    """

    def __init__(
        self,
        specs: tuple[ObservationSpec, ...],
        settings: NetworkSettings,
        initializer: Initializer,
        reads: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.reads = tuple(range(len(specs)) if reads is None else reads)
        self.encoder = build_observer(specs, settings, initializer, reads)
        self.planes = self.encoder.planes if isinstance(self.encoder, BoardEncoder) else None
        widths = () if isinstance(self.encoder, BoardEncoder | AddedBody) else settings.widths
        goals, kind = self.encoder.goal_size, settings.activation
        plain = widths[:-1] if goals else widths
        self.layers = DenseLayers(self.encoder.size, plain, kind, initializer)
        last = widths[-1] if widths else self.encoder.size
        self.conditioned = ConditionedLayer(self.layers.size, last, goals, kind, initializer) if goals else None
        self.memory = Memory(last, settings.memory.memory_size, initializer) if settings.memory is not None else None
        self.size = last if self.memory is None else self.memory.size
        self.encodes_alike = not list(self.encoder.parameters()) and not any(
            isinstance(module, AddedEncoder | AddedBody) for module in self.encoder.modules()
        )

    @property
    def memory_size(self) -> int:
        """Number of values in a memory; 0 without memory."""
        return 0 if self.memory is None else self.memory.memory_size

    def encode(self, observations: Sequence[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, units]``: everything before the memory."""
        return self._before_memory(self.encoder.encode(list(observations)))

    def _before_memory(self, encoded: Encoded) -> Tensor:
        hidden = self.layers.forward(encoded.values)
        if self.conditioned is None or encoded.goals is None:
            return hidden
        return self.conditioned.forward(hidden, encoded.goals)

    def forward(self, observations: Sequence[Tensor], sequences: Unrolled | None = None) -> Tensor:
        """Computes ``[B, size]``.

        Args:
            observations: ``[B, *shape]`` each.
            sequences: Layout of the sequences; required with memory, otherwise not allowed.
        """
        return self.compute(self.encoder.encode(list(observations)), sequences)

    def compute(self, encoded: Encoded, sequences: Unrolled | None = None) -> Tensor:
        """Computes ``[B, size]`` from encoded observations; see `forward`."""
        hidden = self._before_memory(encoded)
        if self.memory is None:
            return hidden
        return self.memory.unroll(hidden, _needed(sequences))[0]

    def remember(self, observations: Sequence[Tensor], sequences: Unrolled) -> Tensor:
        """Computes the memory ``[S, memory_size]`` after packed sequences.

        Args:
            observations: ``[B, *shape]`` each.
            sequences: Layout of the sequences.

        Raises:
            ValueError: The body has no memory.
        """
        if self.memory is None:
            raise ValueError("a body without a memory was asked to remember")
        return self.memory.unroll(self.encode(observations), sequences)[1]

    def step(self, observations: Sequence[Tensor], recurrent_in: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Computes ``[B, size]`` of one step and the memory after the step.

        Args:
            observations: ``[B, *shape]`` each.
            recurrent_in: Memory before the step, ``[B, memory_size]``; None without memory.
        """
        hidden = self.encode(observations)
        if self.memory is None:
            return hidden, None
        return self.memory.forward(hidden, _needed(recurrent_in))


def _needed(value: Needed | None) -> Needed:
    """Returns the argument that a memory requires.

    Raises:
        ValueError: The argument is missing; a fault in the learner's code.
    """
    if value is None:
        raise ValueError("a recurrent network was called without a memory")
    return value
