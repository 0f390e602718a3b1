"""The body: encoders, then linear layers with an activation after each, of which goals may condition the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.exits import ExitCode, UserError
from learner.ingest.network_size import row_numbers
from learner.networks.conditioning import ConditionedLayer
from learner.networks.dense import DenseLayers, DenseRecord
from learner.networks.encoders import ObservationEncoder
from learner.networks.initializers import Initializer
from learner.settings.network import NetworkSettings


class BodyRecord(NamedTuple):
    """What the way back through a `Body` needs.

    Attributes:
        watched: what autograd goes back from: ``[B, size]`` of the encoders if they have parameters; ``[B,
            hidden_units]`` if goals condition the body.
        dense: of the layers; None if autograd watches them, too.
    """

    watched: Tensor
    dense: DenseRecord | None


class Body(nn.Module):
    """Observations to ``[B, hidden_units]``.

    Args:
        specs: the observations, in the order in which they arrive.
        settings: the network block of the run file.
        initializer: where initial weights come from.

    Raises:
        UserError: the settings ask for something these networks do not have, or a goal has no fixed length.

    Attributes:
        row_numbers: roughly how many numbers one row takes beside the usual few, for callers that bound their memory.
    """

    def __init__(self, specs: tuple[ObservationSpec, ...], settings: NetworkSettings, initializer: Initializer) -> None:
        super().__init__()
        if settings.memory is not None:
            raise UserError(
                ExitCode.RUN_FILE,
                "network_settings.memory is set, but recurrent networks do not exist yet: take the memory block out",
            )
        self.encoder = ObservationEncoder(specs, settings, initializer)
        self.size = settings.hidden_units
        goals, kind = self.encoder.goal_size, settings.activation
        plain = settings.num_layers - 1 if goals else settings.num_layers
        self.layers = DenseLayers(self.encoder.size, self.size, plain, kind, initializer)
        inputs = self.size if plain else self.encoder.size
        self.conditioned = ConditionedLayer(inputs, self.size, goals, kind, initializer) if goals else None
        self.row_numbers = row_numbers(specs, settings)
        self._encoder_learns = any(parameter.requires_grad for parameter in self.encoder.parameters())

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, hidden_units]``."""
        values, goals = self.encoder.encode(list(observations))
        hidden: Tensor = self.layers(values)
        if self.conditioned is not None and goals is not None:
            hidden = self.conditioned(hidden, goals)
        return hidden

    def record(self, observations: Sequence[Tensor]) -> tuple[Tensor, BodyRecord]:
        """Computes the same as `forward`, and what `backward` needs.

        Autograd watches encoders with parameters, and a body that goals condition.
        """
        if self.conditioned is not None:
            with torch.enable_grad():
                watched = self(observations)
            return watched.detach(), BodyRecord(watched, None)
        if self._encoder_learns:
            with torch.enable_grad():
                encoded = self.encoder(list(observations))
        else:
            encoded = self.encoder(list(observations))
        hidden, dense = self.layers.record(encoded.detach())
        return hidden, BodyRecord(encoded, dense)

    def backward(self, record: BodyRecord, outer: Tensor) -> None:
        """Writes the gradient of every parameter.

        Args:
            record: of `record`.
            outer: the loss's derivative with respect to what came out, ``[B, hidden_units]``.
        """
        if record.dense is None:
            _backward(record.watched, list(self.parameters()), outer)
            return
        inner = self.layers.backward(record.dense, outer, to_inputs=self._encoder_learns)
        if inner is not None:
            _backward(record.watched, list(self.encoder.parameters()), inner)


def _backward(watched: Tensor, parameters: list[nn.Parameter], outer: Tensor) -> None:
    """Writes gradients that autograd finds."""
    for parameter, gradient in zip(parameters, torch.autograd.grad(watched, parameters, outer), strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(gradient)
