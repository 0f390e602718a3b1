"""The body: encoders, then linear layers with an activation after each, of which goals may condition the last; a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.networks.dense import ConditionedLayer, DenseLayers
from learner.networks.encoders import Encoded, ObservationEncoder
from learner.networks.initializers import Initializer
from learner.networks.lstm import Memory, Unrolled
from learner.networks.tower import BoardEncoder
from learner.networks.visual import AddedEncoder
from learner.settings.network import NetworkSettings

Needed = TypeVar("Needed")


class Body(nn.Module):
    """Observations to ``[B, size]``.

    Args:
        specs: the observations, in the order in which they arrive.
        settings: the network block of the run file.
        initializer: where initial weights come from.

    Raises:
        UserError: the observations cannot be read under the settings.

    Attributes:
        size: width of what comes out: ``hidden_units``, half of the memory's size, or the numbers of a tower's planes.
        memory: the recurrent part; None without.
        planes: the shape of what comes out of a residual tower; None of anything else.
        encodes_alike: whether the encoder of another body for the same observations computes the same: it has no weights,
            trained or not, and is no package's, which may have drawn what it holds.
    """

    def __init__(self, specs: tuple[ObservationSpec, ...], settings: NetworkSettings, initializer: Initializer) -> None:
        super().__init__()
        self.encoder: ObservationEncoder | BoardEncoder
        if settings.tower is None:
            self.encoder, self.planes = ObservationEncoder(specs, settings, initializer), None
            units, plain = settings.hidden_units, settings.num_layers
        else:
            self.encoder = BoardEncoder(specs, settings, settings.tower, initializer)
            self.planes = self.encoder.planes
            units, plain = self.encoder.size, 0
        goals, kind = self.encoder.goal_size, settings.activation
        plain -= bool(goals)
        self.layers = DenseLayers(self.encoder.size, units, plain, kind, initializer)
        inputs = units if plain else self.encoder.size
        self.conditioned = ConditionedLayer(inputs, units, goals, kind, initializer) if goals else None
        self.memory = Memory(units, settings.memory.memory_size, initializer) if settings.memory is not None else None
        self.size = units if self.memory is None else self.memory.size
        self.encodes_alike = not list(self.encoder.parameters()) and not any(
            isinstance(module, AddedEncoder) for module in self.encoder.modules()
        )

    @property
    def memory_size(self) -> int:
        """Numbers of a memory; 0 without."""
        return 0 if self.memory is None else self.memory.memory_size

    def encode(self, observations: Sequence[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, hidden_units]``: everything before the memory."""
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
            sequences: how they are sequences; needed with a memory, and only with one.
        """
        return self.compute(self.encoder.encode(list(observations)), sequences)

    def compute(self, encoded: Encoded, sequences: Unrolled | None = None) -> Tensor:
        """Computes ``[B, size]`` of encoded observations; see `forward`."""
        hidden = self._before_memory(encoded)
        if self.memory is None:
            return hidden
        return self.memory.unroll(hidden, _needed(sequences))[0]

    def step(self, observations: Sequence[Tensor], recurrent_in: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Computes ``[B, size]`` of one step, and the memory after it.

        Args:
            observations: ``[B, *shape]`` each.
            recurrent_in: the memory before it, ``[B, memory_size]``; None without memory.
        """
        hidden = self.encode(observations)
        if self.memory is None:
            return hidden, None
        return self.memory.forward(hidden, _needed(recurrent_in))


def _needed(value: Needed | None) -> Needed:
    """Returns what a memory needs.

    Raises:
        ValueError: it is not there; a fault in the learner's own code.
    """
    if value is None:
        raise ValueError("a recurrent network was called without a memory")
    return value
