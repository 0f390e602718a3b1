"""Measures a training with and without a setting that must cost the learner little."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from tests.tools.bench.learner_cpu import CPU_SECONDS, ROWS, LearnerCPU, Row, Side
from tests.tools.bench.measurement import STEPS_PER_SECOND
from tests.tools.bench.processes import Workplace
from tests.tools.bench.table import Column, Layout, Pair

COLUMNS: Final = (
    Column("CPU s per 100,000 steps", CPU_SECONDS, ".2f"),
    Column("trained steps/s", STEPS_PER_SECOND, ",.0f"),
)


class Sides(NamedTuple):
    """A training on two sides.

    Attributes:
        name: For options and the JSON file.
        row: What is trained.
        sides: Name and settings (``key=value``) of each.
        has_own_core: Whether the learner has a core for itself; otherwise all processes use all cores, as they do for a user.
    """

    name: str
    row: Row
    sides: tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]
    has_own_core: bool = True

    def pair(self) -> Pair:
        """Returns its rows of the table."""
        first, second = (name for name, _ in self.sides)
        place = "" if self.has_own_core else ", all cores"
        title = f"{self.row.title}{place}: {first} / {second}"
        return Pair(title, f"{self.name}-{first}", f"{self.name}-{second}", COLUMNS)


_BOARD: Final = Row(
    "connect_four",
    "connect_four, ppo tower 2 x 32",
    "learner/run_files/shogi.yaml",
    "Shogi",
    "connect_four",
    60_000,
    envs=32,
    settings=(
        "hyperparameters.buffer_size=2048",
        "hyperparameters.num_epoch=2",
        "network_settings.tower.policy_head=linear",
        "threaded=false",
    ),
    actor="boards",
)
_OPPONENTS: Final = (
    "rollcast.evaluation.interval_steps=6000",
    "rollcast.evaluation.episodes=40",
    'rollcast.evaluation.opponents=["random"]',
)
FAST: Final = ROWS[0]
_THREADS_OR_PROCESS: Final = (
    ("threads", ("rollcast.trainer_process=false",)),
    ("process", ("rollcast.trainer_process=true",)),
)
PAIRS: Final = (
    Sides("process", FAST, _THREADS_OR_PROCESS),
    Sides("process-free", FAST, _THREADS_OR_PROCESS, has_own_core=False),
    Sides("opponents", _BOARD, (("without", ()), ("opponents", _OPPONENTS))),
)
LAYOUT: Final = Layout(
    "CPU seconds of the service and the trainers, and trained steps a second; start-up is left out",
    pairs=tuple(each.pair() for each in PAIRS),
)


def contestants(workplace: Workplace, names: Collection[str] = ()) -> list[LearnerCPU]:
    """Returns the measurements, both sides of each pair one after the other.

    Args:
        workplace: Where logs and run folders go.
        names: Names of pairs; none stands for all.
    """
    return [
        LearnerCPU(
            workplace,
            pair.row,
            Side(side, Side.here().root, Side.here().python),
            f"{pair.name}-{side}",
            learner_options=[part for setting in settings for part in ("--set", setting)],
            has_own_core=pair.has_own_core,
        )
        for pair in PAIRS
        if not names or pair.name in names
        for side, settings in pair.sides
    ]
