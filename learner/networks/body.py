"""The body: encoders, then linear layers with an activation after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.exits import ExitCode, UserError
from learner.networks.dense import DenseLayers, DenseRecord
from learner.networks.encoders import ObservationEncoder
from learner.networks.initializers import Initializer
from learner.settings.network import NetworkSettings


class BodyRecord(NamedTuple):
    """What the way back through a `Body` needs.

    Attributes:
        encoded: ``[B, size]``, attached to autograd if encoders have parameters.
        dense: of the layers.
    """

    encoded: Tensor
    dense: DenseRecord


class Body(nn.Module):
    """Observations to ``[B, hidden_units]``.

    Args:
        specs: the observations, in the order in which they arrive.
        settings: the network block of the run file.
        initializer: where initial weights come from.

    Raises:
        UserError: the settings ask for something these networks do not have.
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
        self.layers = DenseLayers(self.encoder.size, self.size, settings.num_layers, settings.activation, initializer)
        self._encoder_learns = any(parameter.requires_grad for parameter in self.encoder.parameters())

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, hidden_units]``."""
        hidden: Tensor = self.layers(self.encoder(list(observations)))
        return hidden

    def record(self, observations: Sequence[Tensor]) -> tuple[Tensor, BodyRecord]:
        """Computes the same as `forward`, and what `backward` needs; autograd watches encoders with parameters only."""
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
        inner = self.layers.backward(record.dense, outer, to_inputs=self._encoder_learns)
        if inner is not None:
            parameters = list(self.encoder.parameters())
            for parameter, gradient in zip(
                parameters, torch.autograd.grad(record.encoded, parameters, inner), strict=True
            ):
                if parameter.grad is not None:
                    parameter.grad.copy_(gradient)
