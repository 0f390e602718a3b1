"""A residual tower for board games: maps planes of a board to planes, which heads read through a 1x1 convolution.

The form is that of Silver et al. 2017 ("Mastering the game of Go without human knowledge", Methods) without batch
normalization, whose statistics would make the learner's log-probabilities differ from those recorded by actors. Blocks
are pre-activated (He et al. 2016, arXiv:1603.05027), and their second convolutions start smaller in deeper towers (as
in Zhang et al. 2019, arXiv:1901.09321), so that the output initially has the scale of the input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.settings.network import NetworkSettings, TowerSettings
from learner.training.networks.dense import linear
from learner.training.networks.encoders import Encoded, VectorEncoder, build_encoder
from learner.training.networks.heads import CategoricalHead, ValueHead, log_probabilities
from learner.training.networks.initializers import Initializer
from learner.training.networks.observations import (
    ObservationError,
    is_channels_first,
    is_entities,
    is_picture,
    picture_size,
)


class Board(NamedTuple):
    """The shape of planes of a board.

    Attributes:
        planes: Number of planes.
        height: Height of each plane.
        width: Width of each plane.
    """

    planes: int
    height: int
    width: int


def _boards_size(specs: Sequence[ObservationSpec]) -> Board:
    """Returns the total planes of all boards and their common height and width.

    Args:
        specs: The observations that the tower reads.

    Raises:
        ObservationError: There is no board, boards differ in size, or the observations include a list of entities.
    """
    sizes = [picture_size(spec) for spec in specs if is_picture(spec)]
    if not sizes:
        raise ObservationError(
            f"network_settings.tower is set, but none of the observations {', '.join(spec.name for spec in specs)} "
            "consists of board planes: send an array of three axes with its layout (in Gymnasium, a Box with the "
            "attribute layout = 'CHW'), or remove the tower"
        )
    if len({size[:2] for size in sizes}) > 1:
        shown = " and ".join(f"{height}x{width}" for height, width in sorted({size[:2] for size in sizes}))
        raise ObservationError(
            f"network_settings.tower is set, but the boards have the sizes {shown}: all must have the same size"
        )
    lists = [spec.name for spec in specs if is_entities(spec)]
    if lists:
        raise ObservationError(
            f"network_settings.tower is set, but observation {lists[0]!r} is a list of entities, which a tower "
            "cannot read"
        )
    height, width, _ = sizes[0]
    return Board(sum(planes for _, _, planes in sizes), height, width)


class _Block(nn.Module):
    """Two 3x3 convolutions with a skip connection.

    Args:
        width: Number of planes.
        depth: Number of blocks of the tower.
        initializer: Draws the initial weights.
    """

    def __init__(self, width: int, depth: int, initializer: Initializer) -> None:
        super().__init__()
        second = initializer.conv(width, width, 3, padding=1)
        with torch.no_grad():
            second.weight.mul_(1.0 / math.sqrt(depth))
        self.layers = nn.Sequential(nn.ReLU(), initializer.conv(width, width, 3, padding=1), nn.ReLU(), second)

    def forward(self, planes: Tensor) -> Tensor:
        """Adds the block's result to its input ``[B, width, H, W]``."""
        changed: Tensor = self.layers(planes)
        return planes + changed


class BoardEncoder(nn.Module):
    """Encodes all observations of a behavior as one board, through the tower: ``[B, width * H * W]``.

    Boards are stacked; each number outside of boards becomes a constant plane.

    Args:
        specs: The observations, in the order in which they arrive.
        settings: The network block of the run file.
        tower: Settings of the tower.
        initializer: Draws the initial weights.
        reads: Indices of the observations to encode; None encodes all. The others are ignored.

    Raises:
        ObservationError: The observations do not form a board.

    Attributes:
        size: Width of the output.
        planes: Shape of the output, ``(width, H, W)``.
    """

    goal_size = 0

    def __init__(
        self,
        specs: tuple[ObservationSpec, ...],
        settings: NetworkSettings,
        tower: TowerSettings,
        initializer: Initializer,
        reads: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        places = range(len(specs)) if reads is None else reads
        board = _boards_size([specs[index] for index in places])
        self._boards = tuple((index, specs[index]) for index in places if is_picture(specs[index]))
        beside = {
            index: build_encoder(specs[index], settings, initializer)
            for index in places
            if not is_picture(specs[index])
        }
        self._beside = tuple(beside)
        self.encoders = nn.ModuleList(beside.values())
        self.normalizing = {
            index: encoder
            for index, encoder in beside.items()
            if isinstance(encoder, VectorEncoder) and encoder.normalizer is not None
        }
        self.planes = Board(tower.width, board.height, board.width)
        self.size = math.prod(self.planes)
        self.register_buffer("ones", torch.ones(1, 1, board.height, board.width), persistent=False)
        planes = board.planes + sum(encoder.size for encoder in beside.values())
        self.stem = initializer.conv(planes, tower.width, 3, padding=1)
        self.blocks = nn.Sequential(*(_Block(tower.width, tower.depth, initializer) for _ in range(tower.depth)))

    ones: Tensor

    def forward(self, observations: list[Tensor]) -> Tensor:
        """Computes ``[B, width * H * W]``."""
        parts = [_planes(observations[index], spec) for index, spec in self._boards]
        for index, encoder in zip(self._beside, self.encoders, strict=True):
            numbers: Tensor = encoder(observations[index])
            parts.append(numbers.unsqueeze(2).unsqueeze(3) * self.ones)
        board = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        found: Tensor = self.blocks(self.stem(board)).relu().flatten(1)
        return found

    def encode(self, observations: list[Tensor]) -> Encoded:
        """Encodes in the form of `ObservationEncoder.encode`; goals are planes like the other observations."""
        return Encoded(self(observations), None)


def _planes(observation: Tensor, spec: ObservationSpec) -> Tensor:
    """Returns a board as ``[B, planes, H, W]`` float32."""
    planes = observation.to(torch.float32)
    if not is_channels_first(spec):
        planes = planes.permute(0, 3, 1, 2)
    return planes * (1.0 / spec.scale) if spec.scale else planes


class _Neck(nn.Module):
    """Reduces the tower's planes for a head with a 1x1 convolution, so that the head's linear layer stays small.

    Args:
        planes: Number of planes of the tower.
        count: Number of remaining planes.
        initializer: Draws the initial weights.
    """

    def __init__(self, planes: Board, count: int, initializer: Initializer) -> None:
        super().__init__()
        self._shape = tuple(planes)
        self.size = count * planes.height * planes.width
        self.conv = initializer.conv(planes.planes, count, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Computes ``[B, size]`` from the tower's output."""
        found: Tensor = self.conv(hidden.reshape(-1, *self._shape)).relu().flatten(1)
        return found


class BoardCategoricalHead(CategoricalHead):
    """Scores moves: a 1x1 convolution, then one score for each choice of each branch.

    Args:
        planes: Number of planes of the tower.
        tower: Settings of the tower.
        branches: Number of choices of each branch.
        initializer: Draws the initial weights.
    """

    def __init__(
        self, planes: Board, tower: TowerSettings, branches: tuple[int, ...], initializer: Initializer
    ) -> None:
        neck = _Neck(planes, tower.policy_planes, initializer)
        super().__init__(neck.size, branches, initializer)
        self.neck = neck

    def forward(self, hidden: Tensor, action_masks: Tensor | None) -> Tensor:
        """Computes log-probabilities ``[B, sum(branches)]`` from the tower's output; see `CategoricalHead`."""
        return super().forward(self.neck(hidden), action_masks)


class BoardPlanesHead(nn.Module):
    """Scores moves as planes of squares: a 1x1 convolution, so that a kind of move is learned on all squares at once.

    The form is that of Silver et al. 2018 ("A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play", Supplementary Materials). Choice ``k * H * W + t`` of a branch is square ``t`` of plane
    ``k``, with squares in the order of the observation's rows. Choices after the last whole plane, such as a pass, are
    scored from the mean of each plane of the tower.

    Args:
        planes: Shape of the tower's output.
        branches: Number of choices of each branch.
        initializer: Draws the initial weights.

    Raises:
        ObservationError: A branch has fewer choices than the board has squares.
    """

    def __init__(self, planes: Board, branches: tuple[int, ...], initializer: Initializer) -> None:
        super().__init__()
        squares = planes.height * planes.width
        if min(branches) < squares:
            raise ObservationError(
                f"network_settings.tower.policy_head is 'conv', but a branch of {min(branches)} choices has no plane "
                f"of {planes.height}x{planes.width} squares: set it to 'linear'"
            )
        self.branches = branches
        self._shape = tuple(planes)
        self._planes = [count // squares for count in branches]
        self._others = [count % squares for count in branches]
        gain = initializer.gains.logits
        self.conv = initializer.conv(planes.planes, sum(self._planes), 1, gain=gain)
        self.others = initializer.linear(planes.planes, sum(self._others), gain) if any(self._others) else None

    def forward(self, hidden: Tensor, action_masks: Tensor | None) -> Tensor:
        """Computes log-probabilities ``[B, sum(branches)]`` from the tower's output; see `CategoricalHead`."""
        board = hidden.reshape(-1, *self._shape)
        moves: Tensor = self.conv(board)
        if self.others is None:
            return log_probabilities(moves.flatten(1), action_masks, self.branches)
        others = linear(self.others, board.mean(dim=(2, 3)))
        parts = zip(moves.split(self._planes, dim=1), others.split(self._others, dim=1), strict=True)
        logits = torch.cat([part for planes, rest in parts for part in (planes.flatten(1), rest)], dim=1)
        return log_probabilities(logits, action_masks, self.branches)


class BoardValueHead(ValueHead):
    """Values a position: a 1x1 convolution, a hidden layer if one is set, then one value for each reward signal.

    Args:
        planes: Number of planes of the tower.
        tower: Settings of the tower.
        signals: Number of reward signals.
        initializer: Draws the initial weights.
    """

    def __init__(self, planes: Board, tower: TowerSettings, signals: int, initializer: Initializer) -> None:
        neck = _Neck(planes, tower.value_planes, initializer)
        units = tower.value_units
        layer = None if units is None else initializer.linear(neck.size, units, initializer.gains.hidden)
        super().__init__(neck.size if units is None else units, signals, initializer)
        self.neck = neck
        self.layer = layer

    def forward(self, hidden: Tensor) -> Tensor:
        """Computes values ``[B, signals]`` from the tower's output."""
        found = self.neck(hidden)
        return super().forward(found if self.layer is None else linear(self.layer, found).relu())
