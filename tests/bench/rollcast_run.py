"""Rollcast, end to end: a learner and actors as processes of their own, over gRPC."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    TARGET_RETURN,
    Figures,
    MeasurementFailed,
)
from tests.bench.processes import REPOSITORY, Child
from tests.bench.workplace import Workplace

RUN_FILE = REPOSITORY / "deploy" / "runs" / "cartpole-fast.yaml"
ENV = "CartPole-v1"
EPISODES = 100
FEWEST_STEPS = EPISODES * TARGET_RETURN
"""A step of CartPole brings a reward of 1, and the mean is over so many episodes."""
START_SECONDS = 120.0
RUN_SECONDS = 300.0
ACTOR_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Command:
    """How the two programs are started; the profiler puts itself in front of them.

    Attributes:
        learner: program and first arguments of the learner.
        actor: program and first arguments of an actor.
    """

    learner: tuple[str, ...] = (sys.executable, "-m", "learner")
    actor: tuple[str, ...] = (sys.executable, "-m", "actor_client")


class Rollcast:
    """The run file for several actors, trained to the target.

    Args:
        workplace: where logs and run folders go.
        actors: how many actor processes.
        envs: environments in each.
        command: how the programs are started.
    """

    name = "rollcast"

    def __init__(self, workplace: Workplace, *, actors: int, envs: int, command: Command | None = None) -> None:
        self.title = f"Rollcast {version('rollcast')} PPO, {actors} x {envs} envs"
        self._workplace = workplace
        self._actors = actors
        self._envs = envs
        self._command = command or Command()

    def prepare(self) -> None:
        """Nothing to do: it is installed where this runs."""

    def measure(self, round_index: int) -> Figures:
        """Trains once, to the target."""
        run_id = f"round-{round_index}"
        folder = self._workplace.runs / run_id
        shutil.rmtree(folder, ignore_errors=True)
        with self._learner(run_id, seed=round_index + 1) as learner, ExitStack() as stack:
            addresses = folder / "address.json"
            learner.wait_until(addresses.exists, "it listened", START_SECONDS)
            address = str(_read(addresses)["address"])
            actors = [stack.enter_context(self._actor(address, run_id, index)) for index in range(self._actors)]
            learner.wait_for_success(RUN_SECONDS)
            for actor in actors:
                actor.wait_for_success(ACTOR_END_SECONDS)
        return read_summary(_read(folder / "summary.json"))

    @contextmanager
    def _learner(self, run_id: str, seed: int) -> Iterator[Child]:
        command: list[str | Path] = [
            *self._command.learner, "serve", RUN_FILE, "--run-id", run_id, "--results-dir", self._workplace.runs,
            "--address", "127.0.0.1:0", "--target-return", str(TARGET_RETURN), "--seed", str(seed),
        ]  # fmt: skip
        with Child("the learner", command, self._workplace.log(f"{run_id}-learner")) as child:
            yield child

    @contextmanager
    def _actor(self, address: str, run_id: str, index: int) -> Iterator[Child]:
        command = [
            *self._command.actor, "gym", "--env", ENV, "--num-envs", str(self._envs), "--learner", address,
            "--name", f"bench-{index}",
        ]  # fmt: skip
        with Child(f"actor {index}", command, self._workplace.log(f"{run_id}-actor-{index}")) as child:
            yield child


def read_summary(summary: Mapping[str, Any]) -> Figures:
    """Returns the figures in a run's summary.

    Raises:
        MeasurementFailed: no actor ever took a step, or the figures contradict each other.
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
