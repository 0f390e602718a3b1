"""What reads the observations of a behavior: encoders, a residual tower, or a module of the user."""

from __future__ import annotations

from collections.abc import Sequence

from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.settings.extensions import BODIES
from learner.shared.settings.network import NetworkSettings
from learner.training.networks.encoders import Encoded, ObservationEncoder, VectorEncoder
from learner.training.networks.initializers import Initializer
from learner.training.networks.tower import BoardEncoder
from learner.training.networks.visual import added_module, example_of, require_rows

_SETTING = "network_settings.body"


class AddedBody(nn.Module):
    """Computes ``[B, size]`` from all observations with a user's module, in place of encoders and layers.

    What the run file names is called with the specs of the observations that it reads, the network's settings and an
    `Initializer`, and returns a module that takes a list of ``[B, *shape]`` in wire form. It becomes part of ONNX files, and
    is measured on the meta device, as `AddedEncoder` is. Encoders of Rollcast may be part of it.

    Args:
        specs: The observations, in the order in which they arrive.
        name: ``module:callable``, or the name of an entry point.
        settings: The network block of the run file.
        initializer: Draws the initial weights.
        reads: Indices of the observations to read; None reads all. The others are ignored.

    Raises:
        UserError: The module cannot be imported or created, or returns something else.

    Attributes:
        size: Width of the result.
        goal_size: 0: goals are observations like others.
        normalizing: Normalizing encoders of Rollcast in it, by the index of their observation.
    """

    goal_size = 0

    def __init__(
        self,
        specs: tuple[ObservationSpec, ...],
        name: str,
        settings: NetworkSettings,
        initializer: Initializer,
        reads: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self._places = tuple(range(len(specs)) if reads is None else reads)
        seen = tuple(specs[index] for index in self._places)
        self.body = added_module(_SETTING, name, BODIES, lambda factory: factory(seen, settings, initializer))
        self.size = require_rows(_SETTING, name, self.body, [example_of(spec) for spec in seen], None)
        self.normalizing: dict[int, VectorEncoder] = {}
        for encoder in self.body.modules():  # those know only the observations that the module reads
            if isinstance(encoder, ObservationEncoder | BoardEncoder):
                encoder.normalizing = {self._places[index]: each for index, each in encoder.normalizing.items()}
                self.normalizing |= encoder.normalizing

    def forward(self, observations: list[Tensor]) -> Tensor:
        """Computes ``[B, size]`` from ``[B, *shape]`` of each observation."""
        found: Tensor = self.body([observations[index] for index in self._places])
        return found

    def encode(self, observations: list[Tensor]) -> Encoded:
        """Encodes in the form of `ObservationEncoder.encode`."""
        return Encoded(self(observations), None)


Observer = ObservationEncoder | BoardEncoder | AddedBody


def build_observer(
    specs: tuple[ObservationSpec, ...],
    settings: NetworkSettings,
    initializer: Initializer,
    reads: Sequence[int] | None = None,
) -> Observer:
    """Builds what reads the observations, as the settings say.

    Args:
        specs: The observations, in the order in which they arrive.
        settings: The network block of the run file.
        initializer: Draws the initial weights.
        reads: Indices of the observations to read; None reads all. The others are ignored.

    Raises:
        UserError: The settings do not support the observations, or the user's module cannot be built.
    """
    if settings.body is not None:
        return AddedBody(specs, settings.body, settings, initializer, reads)
    if settings.tower is not None:
        return BoardEncoder(specs, settings, settings.tower, initializer, reads)
    return ObservationEncoder(specs, settings, initializer, reads)
