"""Measures the learner's CPU seconds per 100,000 trained steps of a checkout.

A run has no target and no evaluation, writes no checkpoint while it trains, and takes all its steps. A callback reads the
learner's CPU clock after each update; what counts is the span from the update at a tenth of the steps to the last one, so
neither start-up nor the end of the run is in it. The learner has a core for itself where there are two, and one torch thread.
A trainer with a replay memory broadcasts after a number of updates alone, for by the clock a slower learner does so more often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.bench.callback.learner_clock import CLOCK_PATH, FILE, LearnerClock, clock_by_updates
from tests.tools.bench.measurement import STEPS_PER_SECOND, Figures, MeasurementFailed
from tests.tools.bench.processes import REPOSITORY, Workplace
from tests.tools.bench.rollcast_run import train
from tests.tools.bench.table import Column, Layout, Pair

CPU_SECONDS: Final = "learner_cpu_seconds_per_100000_steps"
STEPS: Final = "trained_steps"
"""In the span that counts."""
UPDATES: Final = "updates_per_100000_steps"
"""Over the whole run."""

WARM_UP_SHARE: Final = 0.1
"""Of the trained steps: they do not count."""
_NEVER: Final = 1_000_000_000
_CHECK_SECONDS: Final = 60.0
_WHERE = "import actor_client, learner, rollcast; print(*(m.__path__[0] for m in (actor_client, learner, rollcast)), sep='\\n')"


@dataclass(frozen=True, slots=True)
class Row:
    """One training.

    Attributes:
        name: For options and the JSON file.
        title: For the table.
        run_file: Its settings, below the repository's root.
        behavior: The only one of the run file.
        env: The environment of Gymnasium that the only actor plays.
        steps: The run's ``max_steps``.
        envs: Environments of the actor.
        settings: Values that replace those of the run file, below ``behaviors.<the only one>``.
        steps_per_update: Those of the run file, with a replay memory: a step counts as trained there once it is in the
            memory, some updates before its own, so the steps that count follow from the updates. None elsewhere.
    """

    name: str
    title: str
    run_file: str
    behavior: str
    env: str
    steps: int
    envs: int = 16
    settings: tuple[str, ...] = ()
    steps_per_update: int | None = None


_WIDE = ("network_settings.hidden_units=256",)

_RUN_FILES = "learner/run_files"
ROWS: Final = (
    Row(
        "cartpole-fast", "cartpole-fast, ppo 2x64", f"{_RUN_FILES}/cartpole-fast.yaml", "CartPole", "CartPole-v1", 1_500_000
    ),
    Row(
        "pendulum-sac", "pendulum-sac, 2x64", f"{_RUN_FILES}/pendulum-sac.yaml", "Pendulum", "Pendulum-v1", 12_000,
        envs=1, steps_per_update=1,
    ),
    Row(
        "cartpole-256", "cartpole, ppo 2x256", f"{_RUN_FILES}/cartpole.yaml", "CartPole", "CartPole-v1", 180_000,
        settings=_WIDE,
    ),
    Row(
        "pendulum-sac-256", "pendulum-sac, 2x256", f"{_RUN_FILES}/pendulum-sac.yaml", "Pendulum", "Pendulum-v1", 3_000,
        envs=1, settings=_WIDE, steps_per_update=1,
    ),
    Row(
        "catch", "catch, ppo 84x84 pixels", "deploy/examples/pixels/catch.yaml", "Catch",
        "deploy.examples.pixels.catch:Catch", 35_000,
    ),
)  # fmt: skip
"""A run takes 20 to 40 seconds on two idle cores, the start of its processes included."""


@dataclass(frozen=True, slots=True)
class Side:
    """A checkout."""

    name: str
    root: Path
    python: Path

    @classmethod
    def here(cls) -> Side:
        """Returns this checkout."""
        return cls("this checkout", REPOSITORY, Path(sys.executable))

    @classmethod
    def at(cls, root: Path) -> Side:
        """Returns another checkout, with the virtual environment that `make venv` makes.

        Raises:
            MeasurementFailed: It has none, or another checkout is installed in it.
        """
        side = cls(root.name, root, root / ".venv" / "bin" / "python")
        if not side.python.exists():
            raise MeasurementFailed(f"{side.python} does not exist; run `make venv` in {root}")
        found = subprocess.run(
            [side.python, "-c", _WHERE], cwd=root, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False
        )
        if found.returncode:
            raise MeasurementFailed(f"{side.python} cannot import Rollcast: {found.stderr.strip()[-300:]}")
        strange = [place for place in found.stdout.splitlines() if not Path(place).resolve().is_relative_to(root)]
        if strange:
            raise MeasurementFailed(
                f"{side.python} imports {strange[0]}, which is not in {root}; run `make venv` there"
            )
        return side


class LearnerCPU:
    """A row on one side.

    Args:
        workplace: Where logs and run folders go.
        row: What is trained.
        side: Whose code trains it.
        name: For the JSON file.
        learner_options: Further options of the learner.
        actor_options: Further options of the actor.
    """

    def __init__(
        self,
        workplace: Workplace,
        row: Row,
        side: Side,
        name: str,
        *,
        learner_options: Sequence[str] = (),
        actor_options: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.title = f"{row.title}, {side.name}"
        self._workplace = workplace
        self._row = row
        self._side = side
        self._learner_options = tuple(learner_options)
        self._actor_options = tuple(actor_options)

    def prepare(self) -> None:
        """Does nothing, because both checkouts are installed."""

    def measure(self, round_index: int) -> Figures:
        """Trains once, all steps; both sides with the same seed."""
        run_id = f"{self.name}-{round_index}"
        summary = train(
            self._workplace,
            run_id,
            (*learner_command(self._row, self._side, seed=round_index + 1), *self._learner_options),
            (*actor_command(self._row, self._side), *self._actor_options),
            cwd=self._side.root,
            environment={"PYTHONPATH": str(CLOCK_PATH.parent)},
            cores=split_cores(),
        )
        if summary["stop_reason"] != "max_steps":
            raise MeasurementFailed(f"the run ended by {summary['stop_reason']}, not by max_steps")
        return read_clock(self._workplace.runs / run_id / FILE, self._row.steps_per_update)


def contestants(workplace: Workplace, rows: Collection[str], against: Path | None) -> list[LearnerCPU]:
    """Returns the rows of this checkout, each followed by the other's if there is another.

    Args:
        workplace: Where logs and run folders go.
        rows: Names of rows; none stands for all.
        against: The other checkout.

    Raises:
        MeasurementFailed: The other checkout cannot be run.
    """
    sides = [Side.here()] if against is None else [Side.here(), Side.at(against)]
    return [
        LearnerCPU(workplace, row, side, row.name if index == 0 else against_name(row))
        for row in ROWS
        if not rows or row.name in rows
        for index, side in enumerate(sides)
    ]


def against_name(row: Row) -> str:
    """Returns the name of a row of the other checkout."""
    return f"{row.name}-against"


def layout(*, is_pair: bool) -> Layout:
    """Returns the table of one checkout, or of two, where the ratio is the speed of this one."""
    legend = (
        "CPU seconds of the learner process, user and system, all threads, per 100,000 trained steps; start-up and the first "
        f"{WARM_UP_SHARE:.0%} of the steps are left out"
    )
    columns = (
        Column("CPU s per 100,000 steps", CPU_SECONDS, ".2f"),
        Column("updates per 100,000 steps", UPDATES, ",.1f"),
        Column("trained steps/s", STEPS_PER_SECOND, ",.0f"),
    )
    if not is_pair:
        return Layout(legend, columns)
    legend += "\nfirst: this checkout, second: the other; of the CPU seconds the ratio is the speed, so more is better for this one"
    return Layout(legend, pairs=tuple(Pair(row.title, row.name, against_name(row), columns[:2]) for row in ROWS))


def learner_command(row: Row, side: Side, *, seed: int) -> tuple[str, ...]:
    """Returns the learner's command line but for its run folder and address; the run file is this checkout's."""
    own = f"behaviors.{row.behavior}"
    clock = LearnerClock if row.steps_per_update is None else clock_by_updates
    settings = [
        *(f"{own}.{setting}" for setting in row.settings),
        f"{own}.max_steps={row.steps}",
        f"{own}.checkpoint_interval={_NEVER}",
        f"rollcast.checkpoint_seconds={_NEVER}",
        "rollcast.target_return=null",
        "rollcast.torch_threads=1",
        "rollcast.http=false",
        f'rollcast.callbacks=["{CLOCK_PATH.stem}:{clock.__name__}"]',
    ]
    options = [part for setting in settings for part in ("--set", setting)]
    return (
        str(side.python), "-m", "learner", "serve", str(REPOSITORY / row.run_file), "--torch-device", "cpu",
        "--seed", str(seed), *options,
    )  # fmt: skip


def actor_command(row: Row, side: Side) -> tuple[str, ...]:
    """Returns the actor's command line but for the learner's address; its seed comes from the learner."""
    return (str(side.python), "-m", "actor_client", "gym", "--env", row.env, "--num-envs", str(row.envs))


def split_cores() -> tuple[frozenset[int], frozenset[int]] | tuple[None, None]:
    """Returns the cores of the learner, one, and those of the actors, the others; None where there is one only."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (frozenset(cores[:1]), frozenset(cores[1:])) if len(cores) > 1 else (None, None)


def read_clock(path: Path, steps_per_update: int | None = None) -> Figures:
    """Returns what the clocks say about the time after the warm-up.

    Args:
        path: What the callback left.
        steps_per_update: As in `Row`.

    Raises:
        MeasurementFailed: The run left no file, or too few updates are in it.
    """
    try:
        marks: Sequence[tuple[int, int, float, float]] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MeasurementFailed(f"the learner left no {path}; its log says why") from None
    last = marks[-1] if marks else (0, 0, 0.0, 0.0)
    first = next((mark for mark in marks if mark[1] >= WARM_UP_SHARE * last[1]), last)
    updates, steps, cpu_seconds, wall_seconds = (end - begin for begin, end in zip(first, last, strict=True))
    if steps <= 0:
        raise MeasurementFailed(f"{len(marks)} updates are too few to measure; give the run more steps")
    if steps_per_update is not None:
        steps = updates * steps_per_update
    hundred_thousands = steps / 100_000
    return Figures(
        {
            CPU_SECONDS: cpu_seconds / hundred_thousands,
            STEPS: steps,
            UPDATES: last[0] / (last[1] / 100_000),
            STEPS_PER_SECOND: steps / wall_seconds,
        }
    )
