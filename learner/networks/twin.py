"""Twin critics Q(s, a): two networks of one shape, whose layers are computed as one.

Both see the same encoded observations and the same continuous actions; what discrete actions are worth comes out side by
side, one number for each choice (Christodoulou 2019, arXiv:1910.07207). Two critics of which the smaller counts do not
overestimate as one does (Fujimoto et al. 2018, arXiv:1802.09477, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.dense import ConditionedLayer, activation
from learner.networks.encoders import Encoded, ObservationEncoder
from learner.networks.initializers import Initializer
from learner.networks.lstm import Memory, Unrolled
from learner.networks.tower import Board, BoardEncoder
from learner.settings.network import NetworkSettings

TWINS = 2


class TwinLayer(nn.Module):
    """Two linear layers: ``[2, B, inputs]`` to ``[2, B, outputs]``.

    Args:
        first, second: layers whose initial weights are taken over.
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([first.weight.detach().t(), second.weight.detach().t()]))
        self.bias = nn.Parameter(torch.stack([first.bias.detach(), second.bias.detach()]).unsqueeze(1))

    def forward(self, values: Tensor) -> Tensor:
        """Computes ``[2, B, outputs]``."""
        return torch.baddbmm(self.bias, values, self.weight)


class TwinNeck(nn.Module):
    """What each twin sees of a tower's planes: a 1x1 convolution of its own; both are computed as one.

    Args:
        planes: of the tower.
        count: planes that are left for each.
        initializer: where initial weights come from.

    Attributes:
        size: numbers that are left for each.
    """

    def __init__(self, planes: Board, count: int, initializer: Initializer) -> None:
        super().__init__()
        self._shape = tuple(planes)
        self.size = count * planes.height * planes.width
        self.conv = initializer.conv(planes.planes, TWINS * count, 1)

    def forward(self, encoded: Tensor) -> Tensor:
        """Computes ``[2, B, size]`` from the tower's numbers."""
        found: Tensor = self.conv(encoded.reshape(-1, *self._shape)).relu()
        return found.view(-1, TWINS, self.size).transpose(0, 1).contiguous()


class TwinCritic(nn.Module):
    """Observations and continuous actions to ``[2, B, signals, choices]``.

    The encoder is common to both (a picture is read once), and so is a memory behind it, which knows nothing of the
    actions; all layers after these are not. A residual tower is such an encoder, too; of its planes each twin sees some
    of its own, and layers follow them only where there are continuous actions.
    ``choices`` is the number of all choices of all branches, side by side, and 1 without discrete actions.

    Args:
        spec: what the behavior sees and does.
        settings: the network block of the run file.
        signals: number of reward signals.
        generator: where initial weights come from; None is torch's own.

    Raises:
        UserError: the settings ask for something that does not fit the behavior.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, signals: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self._activation = activation(settings.activation)
        self._axes = spec.action.continuous_size
        self._signals = signals
        self.choices = spec.action.mask_size or 1
        self.encoder: ObservationEncoder | BoardEncoder
        self.neck: TwinNeck | None = None
        if settings.tower is None:
            self.encoder, count = ObservationEncoder(spec.observations, settings, initializer), settings.num_layers
        else:
            self.encoder = BoardEncoder(spec.observations, settings, settings.tower, initializer)
            count = settings.num_layers if self._axes else 0  # what an axis is worth depends on the board, too
            self.neck = TwinNeck(self.encoder.planes, settings.tower.policy_planes, initializer)
        self.memory = (
            Memory(self.encoder.size, settings.memory.memory_size, initializer) if settings.memory is not None else None
        )
        units, goals = settings.hidden_units, self.encoder.goal_size
        count -= bool(goals)
        widths = [(self.memory or self.neck or self.encoder).size + self._axes] + [units] * count
        gain = initializer.gains.hidden
        self._layers = tuple(
            TwinLayer(initializer.linear(before, units, gain), initializer.linear(before, units, gain))
            for before in widths[:-1]
        )
        self.layers = nn.ModuleList(self._layers)
        self.conditioned = (
            nn.ModuleList(
                ConditionedLayer(widths[-1], units, goals, settings.activation, initializer) for _ in range(TWINS)
            )
            if goals
            else None
        )
        last = units if goals else widths[-1]
        outputs = signals * self.choices
        self.head = TwinLayer(initializer.value(last, outputs), initializer.value(last, outputs))
        behind = (self.layers, self.conditioned, self.head)
        self._behind_encoder = tuple(each for part in behind if part is not None for each in part.parameters())

    def forward(
        self, observations: Sequence[Tensor], actions: Tensor | None, batch_sizes: Tensor | None = None
    ) -> Tensor:
        """Computes values ``[2, B, signals, choices]``.

        Args:
            observations: ``[B, *shape]`` each, in wire types.
            actions: ``[B, n]`` in [-1, 1], or None without continuous actions.
            batch_sizes: see `encode`.
        """
        return self.values(self.encode(observations, batch_sizes), actions)

    def encode(self, observations: Sequence[Tensor], batch_sizes: Tensor | None = None) -> Encoded:
        """Encodes ``[B, *shape]`` of each observation.

        Args:
            observations: in wire types; packed sequences with a memory, before which nothing is remembered.
            batch_sizes: ``[L]`` int64 on the CPU, sequences that have a row at each place; needed with a memory only.

        Returns:
            ``[B, size]``; ``[2, B, size]`` behind a tower, of which each twin sees another part.
        """
        encoded = self.encoder.encode(list(observations))
        if self.neck is not None:
            return encoded._replace(values=self.neck(encoded.values))
        if self.memory is None:
            return encoded
        if batch_sizes is None:
            raise ValueError("critics with a memory were called without sequences")
        nothing = encoded.values.new_zeros(int(batch_sizes[0]), self.memory.memory_size)
        hidden, _ = self.memory.unroll(encoded.values, Unrolled(batch_sizes, nothing))
        return encoded._replace(values=hidden)

    def values(self, encoded: Encoded, actions: Tensor | None) -> Tensor:
        """Computes values ``[2, B, signals, choices]`` of what `encode` made."""
        values = self._first(encoded.values, actions)
        for layer in self._layers:
            values = self._activation(layer.forward(values))
        if self.conditioned is not None and encoded.goals is not None:
            goals = encoded.goals
            values = torch.stack([layer(part, goals) for layer, part in zip(self.conditioned, values, strict=True)])
        return self._shaped(self.head.forward(values))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keeps `values` inside the block from having a gradient in the parameters; it has one in its arguments."""
        for parameter in self._behind_encoder:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self._behind_encoder:
                parameter.requires_grad_()

    def _first(self, encoded: Tensor, actions: Tensor | None) -> Tensor:
        if self.neck is not None:
            return encoded if actions is None else torch.cat((encoded, actions.expand(TWINS, -1, -1)), dim=2)
        values = encoded if actions is None else torch.cat((encoded, actions), dim=1)
        return values.expand(TWINS, -1, -1)

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs.view(TWINS, -1, self._signals, self.choices)


def values_of_actions(values: Tensor, choices: Tensor | None) -> Tensor:
    """Returns what critics say of the actions that were taken, ``[2, B, signals]``; with several branches, the mean over them.

    Args:
        values: ``[2, B, signals, choices]``, with the continuous actions that were taken.
        choices: ``[B, b]`` int64, each plus the offset of its branch; None without discrete actions.
    """
    if choices is None:
        return values.squeeze(3)
    return values.gather(3, choices.unsqueeze(1).expand(*values.shape[:3], -1)).mean(3)
