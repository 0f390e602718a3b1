"""The body: encoders, then linear layers with an activation after each."""

from __future__ import annotations

from collections.abc import Sequence

from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.exits import ExitCode, UserError
from learner.networks.dense import DenseLayers
from learner.networks.encoders import ObservationEncoder
from learner.networks.initializers import Initializer
from learner.settings.network import NetworkSettings


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

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Encodes ``[B, *shape]`` of each observation to ``[B, hidden_units]``."""
        hidden: Tensor = self.layers(self.encoder(list(observations)))
        return hidden
