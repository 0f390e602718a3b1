"""Runs Rollcast end to end: a learner and actors as processes over gRPC."""

import json
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    TARGET_RETURN,
    Figures,
    MeasurementFailed,
)
from tests.tools.bench.processes import REPOSITORY, Child
from tests.tools.bench.workplace import Workplace

RUN_FILE = REPOSITORY / "learner" / "run_files" / "cartpole-fast.yaml"
ENV = "CartPole-v1"
EPISODES = 100
FEWEST_STEPS = EPISODES * TARGET_RETURN
"""A step of CartPole brings a reward of 1, and the mean is over so many episodes."""
START_SECONDS = 120.0
RUN_SECONDS = 300.0
ACTOR_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Command:
    """The command lines of the two programs, to which the profiler prepends itself.

    Attributes:
        learner: Program and first arguments of the learner.
        actor: Program and first arguments of an actor.
    """

    learner: tuple[str, ...] = (sys.executable, "-m", "learner")
    actor: tuple[str, ...] = (sys.executable, "-m", "actor_client")


@dataclass(frozen=True, slots=True)
class Launch:
    """The processes of one training.

    Attributes:
        learner: Program and arguments of the learner; run id, results folder and address are added.
        actors: Program and arguments of each actor; the learner's address is added.
        folder: Where they are started.
        environment: Variables of the learner, added to those of this process.
        learner_cores: Cores of the learner; None leaves it all.
        actor_cores: Cores of the actors; None leaves them all.
    """

    learner: Sequence[str]
    actors: Sequence[Sequence[str]]
    folder: Path = REPOSITORY
    environment: Mapping[str, str] = field(default_factory=dict)
    learner_cores: Collection[int] | None = None
    actor_cores: Collection[int] | None = None


class Rollcast:
    """The run file for several actors, trained to the target.

    Args:
        workplace: Where logs and run folders go.
        actors: How many actor processes.
        envs: Environments in each.
        command: How the programs are started.
    """

    name = "rollcast"

    def __init__(self, workplace: Workplace, *, actors: int, envs: int, command: Command | None = None) -> None:
        self.title = f"Rollcast {version('rollcast')} PPO, {actors} x {envs} envs"
        self._workplace = workplace
        self._actors = actors
        self._envs = envs
        self._command = command or Command()

    def prepare(self) -> None:
        """Does nothing."""

    def measure(self, round_index: int) -> Figures:
        """Trains once, to the target."""
        target = ("--target-return", str(TARGET_RETURN), "--seed", str(round_index + 1))
        actor = (*self._command.actor, "gym", "--env", ENV, "--num-envs", str(self._envs))
        launch = Launch((*self._command.learner, "serve", str(RUN_FILE), *target), (actor,) * self._actors)
        return read_summary(train(self._workplace, f"round-{round_index}", launch))


def train(workplace: Workplace, run_id: str, launch: Launch) -> Mapping[str, Any]:
    """Runs a learner and its actors until all have ended, and returns the run's summary.

    Args:
        workplace: Where logs go, and the run folder, ``runs/<run_id>``; what was in it is removed.
        run_id: Of the run.
        launch: What is started.

    Raises:
        MeasurementFailed: A process failed or hung.
    """
    folder = workplace.runs / run_id
    shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as children:
        options = ("--run-id", run_id, "--results-dir", workplace.runs, "--address", "127.0.0.1:0")
        learner = children.enter_context(
            Child(
                "the learner",
                (*launch.learner, *options),
                workplace.log(f"{run_id}-learner"),
                launch.environment,
                folder=launch.folder,
                cores=launch.learner_cores,
            )
        )
        addresses = folder / "address.json"
        learner.wait_until(addresses.exists, "it listened", START_SECONDS)
        address = str(_read(addresses)["address"])
        actors = [
            children.enter_context(
                Child(
                    f"actor {index}",
                    (*command, "--learner", address, "--name", f"bench-{index}"),
                    workplace.log(f"{run_id}-actor-{index}"),
                    folder=launch.folder,
                    cores=launch.actor_cores,
                )
            )
            for index, command in enumerate(launch.actors)
        ]
        learner.wait_for_success(RUN_SECONDS)
        for actor in actors:
            actor.wait_for_success(ACTOR_END_SECONDS)
    return _read(folder / "summary.json")


def read_summary(summary: Mapping[str, Any]) -> Figures:
    """Returns the figures in a run's summary.

    Raises:
        MeasurementFailed: No actor ever took a step, or the figures contradict each other.
    """
    if not summary.get("env_steps_taken"):
        raise MeasurementFailed("no actor took a step; the logs of the actors say why")
    figures = {STEPS_PER_SECOND: float(summary["env_steps_per_second"])}
    seconds, steps = summary["seconds_to_target"], summary["env_steps_to_target"]
    if seconds is None or steps is None:
        mean_return = summary["mean_return_100"] or float("nan")
        return Figures(
            figures,
            f"not at {TARGET_RETURN:.0f} after {summary['env_steps_taken']:,} steps, {mean_return:.0f} at the end",
        )
    if steps < FEWEST_STEPS:
        raise MeasurementFailed(
            f"the summary says {TARGET_RETURN:.0f} after {steps:,} steps, but {EPISODES} episodes of that return have "
            f"{FEWEST_STEPS:,.0f}: returns are counted wrongly"
        )
    figures |= {SECONDS_TO_TARGET: float(seconds), STEPS_TO_TARGET: float(steps)}
    return Figures(figures)


def _read(path: Path) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
