"""Measures a training with and without a setting that must cost the learner little."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tests.tools.bench.cpu_table import compare
from tests.tools.bench.learner_cpu import CPU_SECONDS, ROWS, LearnerCPU, Row, Side
from tests.tools.bench.measurement import STEPS_PER_SECOND, Series
from tests.tools.bench.table import aligned, cell, remarks
from tests.tools.bench.workplace import Workplace

_LEGEND: Final = (
    "CPU seconds of the service and the trainers, and trained steps a second; start-up is left out. Second over first: median "
    "and range of the rounds"
)
_FIGURES: Final = (("CPU s per 100,000 steps", CPU_SECONDS, ".2f"), ("steps/s", STEPS_PER_SECOND, ",.0f"))


@dataclass(frozen=True, slots=True)
class Pair:
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

    @property
    def title(self) -> str:
        """Names the training and its sides."""
        place = "" if self.has_own_core else ", all cores"
        return f"{self.row.title}{place}: {' / '.join(name for name, _ in self.sides)}"

    def names(self) -> list[str]:
        """Returns the names of both measurements."""
        return [f"{self.name}-{name}" for name, _ in self.sides]


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
(_FAST,) = (row for row in ROWS if row.name == "cartpole-fast")
_THREADS_OR_PROCESS: Final = (
    ("threads", ("rollcast.trainer_process=false",)),
    ("process", ("rollcast.trainer_process=true",)),
)
PAIRS: Final = (
    Pair("process", _FAST, _THREADS_OR_PROCESS),
    Pair("process-free", _FAST, _THREADS_OR_PROCESS, has_own_core=False),
    Pair("opponents", _BOARD, (("without", ()), ("opponents", _OPPONENTS))),
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
            name,
            learner_options=[part for setting in settings for part in ("--set", setting)],
            has_own_core=pair.has_own_core,
        )
        for pair in PAIRS
        if not names or pair.name in names
        for name, (side, settings) in zip(pair.names(), pair.sides, strict=True)
    ]


def render(results: Mapping[str, Series]) -> str:
    """Returns the table, what its figures mean, and remarks."""
    rows: list[tuple[str, ...]] = [("", "", "first", "second", "second over first")]
    for pair in PAIRS:
        first, second = (results.get(name) for name in pair.names())
        if first is None or second is None:
            continue
        for title, figure, form in _FIGURES:
            compared = compare(first, second, figure)
            rows.append(
                (
                    pair.title,
                    title,
                    *(cell(side.spread(figure), form) for side in (first, second)),
                    cell(None if compared is None else compared.of_pairs, ".3f"),
                )
            )
    return "\n\n".join(part for part in (aligned(rows), _LEGEND, remarks(results)) if part)
