"""Builds studies: gates that compare values of a setting over seeds, for its default."""

from collections.abc import Mapping
from dataclasses import replace

from tests.tools.gates.gate import Arm, Gate
from tests.tools.gates.rules import compares

SEEDS = (1, 2, 3, 4, 5)


def study(name: str, title: str, arm: Arm, changes: Mapping[str, tuple[str, ...]]) -> Gate:
    """Returns a gate that trains an arm once for each change, and reports greedy returns and those as acted.

    Args:
        name: Name of the gate.
        title: What the table calls it.
        arm: The training; its name is not used.
        changes: Settings added to those of the arm, by the name of the resulting arm.
    """
    arms = tuple(
        replace(arm, name=each, settings=(*arm.settings, *settings), greedy_episodes=100)
        for each, settings in changes.items()
    )
    asks = f"greedy and as acted of each arm reported after {arm.budget_steps:,}"
    return Gate(name, title, asks, arms, compares(*changes), SEEDS, length="study")
