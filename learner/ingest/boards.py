"""What a residual tower makes of boards: plain arithmetic, for the network and for the check of a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rollcast.specs import ObservationSpec

from learner.ingest.network_size import encoded_width, is_entities, is_picture
from learner.ingest.network_size import row_numbers as plain_row_numbers
from learner.ingest.pictures import picture_size
from learner.settings.network import NetworkSettings, TowerSettings


class Board(NamedTuple):
    """What the first convolution of a tower sees.

    Attributes:
        planes: those of all boards, and one for each number beside them.
        height: of all boards.
        width: of all boards.
    """

    planes: int
    height: int
    width: int


def board_fault(specs: Sequence[ObservationSpec]) -> str | None:
    """Says why observations are no board, and what to do; None if they are one."""
    boards = [spec for spec in specs if is_picture(spec)]
    if not boards:
        return (
            "network_settings.tower is set, but no observation is planes of a board: send an array of three axes with its "
            "layout, in Gymnasium a Box with the attribute layout = 'CHW'; or take the tower out"
        )
    sizes = {picture_size(spec)[:2] for spec in boards}
    if len(sizes) > 1:
        shown = " and ".join(f"{height}x{width}" for height, width in sorted(sizes))
        return f"network_settings.tower is set, but boards are {shown}: all must have one size"
    lists = [spec.name for spec in specs if is_entities(spec)]
    if lists:
        return f"network_settings.tower is set, but observation {lists[0]!r} is a list of entities, which is no plane"
    return None


def board_of(specs: Sequence[ObservationSpec], network: NetworkSettings) -> Board:
    """Returns the size of the board that observations without a `board_fault` make."""
    boards = [picture_size(spec) for spec in specs if is_picture(spec)]
    numbers = sum(encoded_width(spec, network) for spec in specs if not is_picture(spec))
    height, width, _ = boards[0]
    return Board(sum(planes for _, _, planes in boards) + numbers, height, width)


def tower_parameters(specs: Sequence[ObservationSpec], network: NetworkSettings, tower: TowerSettings) -> int:
    """Counts the parameters of the convolutions."""
    planes = board_of(specs, network).planes
    return 9 * tower.width * (planes + 2 * tower.depth * tower.width) + (2 * tower.depth + 1) * tower.width


def row_numbers(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Estimates how many numbers one row leaves for the way back; of a tower, two of each convolution."""
    tower = network.tower
    if tower is None:
        return plain_row_numbers(specs, network)
    board = board_of(specs, network)
    return 2 * (2 * tower.depth + 1) * tower.width * board.height * board.width
