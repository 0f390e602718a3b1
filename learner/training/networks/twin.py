"""Twin critics Q(s, a): two networks of the same shape, whose layers are computed together.

Both receive the same encoded observations and the same continuous actions; the values of discrete actions are
concatenated, one for each choice (Christodoulou 2019, arXiv:1910.07207). The smaller of two critics overestimates less
than a single one (Fujimoto et al. 2018, arXiv:1802.09477, section 4.2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.dense import ConditionedLayer, activation
from learner.training.networks.encoders import Encoded, ObservationEncoder
from learner.training.networks.initializers import Initializer
from learner.training.networks.lstm import Memory, Unrolled
from learner.training.networks.observing import build_observer
from learner.training.networks.tower import Board, BoardEncoder

TWINS = 2


class TwinLayer(nn.Module):
    """Two linear layers computed together: ``[2, B, inputs]`` to ``[2, B, outputs]``.

    Args:
        first, second: Layers whose initial weights are copied.
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([first.weight.detach().t(), second.weight.detach().t()]))
        self.bias = nn.Parameter(torch.stack([first.bias.detach(), second.bias.detach()]).unsqueeze(1))

    def forward(self, values: Tensor) -> Tensor:
        """Computes ``[2, B, outputs]``."""
        return torch.baddbmm(self.bias, values, self.weight)


class TwinNeck(nn.Module):
    """Reduces a tower's planes for each twin with a separate 1x1 convolution; both are computed together.

    Args:
        planes: Number of planes of the tower.
        count: Number of remaining planes for each twin.
        initializer: Draws the initial weights.

    Attributes:
        size: Width of the output for each twin.
    """

    def __init__(self, planes: Board, count: int, initializer: Initializer) -> None:
        super().__init__()
        self._shape = tuple(planes)
        self.size = count * planes.height * planes.width
        self.conv = initializer.conv(planes.planes, TWINS * count, 1)

    def forward(self, encoded: Tensor) -> Tensor:
        """Computes ``[2, B, size]`` from the tower's output."""
        found: Tensor = self.conv(encoded.reshape(-1, *self._shape)).relu()
        return found.view(-1, TWINS, self.size).transpose(0, 1).contiguous()


class TwinCritic(nn.Module):
    """Maps observations and continuous actions to ``[2, B, signals, choices]``.

    Both critics share the encoder (an image is read once) and the memory after it, which does not depend on actions;
    all later layers are separate. With a residual tower as encoder, each twin reduces its planes separately; behind it, or a
    user's module, layers follow only with continuous actions. ``choices`` is the number of all choices of all branches, concatenated, and 1
    without discrete actions.

    Args:
        spec: Observations and actions of the behavior.
        settings: The network block of the run file.
        signals: Number of reward signals.
        generator: Draws the initial weights; None uses torch's default generator.

    Raises:
        UserError: The settings do not fit the behavior.
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
        self.encoder = build_observer(spec.observations, settings, initializer)
        self.neck: TwinNeck | None = None
        # The value of an axis also depends on the board, or on what a user's module makes of the observations.
        hidden = settings.widths if self._axes or isinstance(self.encoder, ObservationEncoder) else ()
        if isinstance(self.encoder, BoardEncoder) and settings.tower is not None:
            self.neck = TwinNeck(self.encoder.planes, settings.tower.policy_planes, initializer)
        self.memory = (
            Memory(self.encoder.size, settings.memory.memory_size, initializer) if settings.memory is not None else None
        )
        goals = self.encoder.goal_size
        widths = ((self.memory or self.neck or self.encoder).size + self._axes, *(hidden[:-1] if goals else hidden))
        gain = initializer.gains.hidden
        self._layers = tuple(
            TwinLayer(initializer.linear(before, after, gain), initializer.linear(before, after, gain))
            for before, after in itertools.pairwise(widths)
        )
        self.layers = nn.ModuleList(self._layers)
        self.conditioned = (
            nn.ModuleList(
                ConditionedLayer(widths[-1], hidden[-1], goals, settings.activation, initializer) for _ in range(TWINS)
            )
            if goals
            else None
        )
        last = hidden[-1] if goals else widths[-1]
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
            actions: ``[B, n]`` in [-1, 1]; None without continuous actions.
            batch_sizes: See `encode`.
        """
        return self.values(self.encode(observations, batch_sizes), actions)

    def encode(
        self, observations: Sequence[Tensor], batch_sizes: Tensor | None = None, memory: Tensor | None = None
    ) -> Encoded:
        """Encodes ``[B, *shape]`` of each observation.

        Args:
            observations: In wire types; with memory, packed sequences.
            batch_sizes: ``[L]`` int64 on the CPU, number of sequences with a row at each position; required only with
                memory.
            memory: ``[S, memory_size]``, memory before each sequence; None is zeros.

        Returns:
            ``[B, size]``; ``[2, B, size]`` after a tower, whose planes each twin reduces separately.
        """
        encoded = self.encoder.encode(list(observations))
        if self.neck is not None:
            return encoded._replace(values=self.neck(encoded.values))
        if self.memory is None:
            return encoded
        if batch_sizes is None:
            raise ValueError("critics with a memory were called without sequences")
        if memory is None:
            memory = encoded.values.new_zeros(int(batch_sizes[0]), self.memory.memory_size)
        hidden, _ = self.memory.unroll(encoded.values, Unrolled(batch_sizes, memory))
        return encoded._replace(values=hidden)

    def remember(self, observations: Sequence[Tensor], sequences: Unrolled) -> Tensor:
        """Computes the memory ``[S, memory_size]`` after packed sequences.

        Args:
            observations: ``[B, *shape]`` each.
            sequences: Layout of the sequences.

        Raises:
            ValueError: The critics have no memory.
        """
        if self.memory is None:
            raise ValueError("critics without a memory were asked to remember")
        return self.memory.unroll(self.encoder.encode(list(observations)).values, sequences)[1]

    def values(self, encoded: Encoded, actions: Tensor | None) -> Tensor:
        """Computes values ``[2, B, signals, choices]`` from the result of `encode`."""
        values = self._first(encoded.values, actions)
        for layer in self._layers:
            values = self._activation(layer.forward(values))
        if self.conditioned is not None and encoded.goals is not None:
            goals = encoded.goals
            values = torch.stack([layer(part, goals) for layer, part in zip(self.conditioned, values, strict=True)])
        return self._shaped(self.head.forward(values))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Prevents gradients of `values` in the parameters inside the block; gradients in its arguments remain."""
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
    """Returns the values of the actions that were taken, ``[2, B, signals]``; with several branches, their mean.

    Args:
        values: ``[2, B, signals, choices]``, for the continuous actions that were taken.
        choices: ``[B, b]`` int64, each plus the offset of its branch; None without discrete actions.
    """
    if choices is None:
        return values.squeeze(3)
    return values.gather(3, choices.unsqueeze(1).expand(*values.shape[:3], -1)).mean(3)
