"""Runs Rollcast end to end: a learner and actors as processes over gRPC."""

import json
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from tests.tools.bench.processes import REPOSITORY, Child, Workplace

RUN_FILE = REPOSITORY / "learner" / "run_files" / "cartpole-fast.yaml"
ENV = "CartPole-v1"
ENVS = 16
EPISODES = 100
FEWEST_STEPS = EPISODES * TARGET_RETURN
"""A step of CartPole brings a reward of 1, and the mean is over so many episodes."""
START_SECONDS = 120.0
RUN_SECONDS = 300.0
ACTOR_END_SECONDS = 30.0


class Rollcast:
    """The run file of the bench with one actor of 16 environments, trained to the target.

    Args:
        workplace: Where logs and run folders go.
    """

    name = "rollcast"

    def __init__(self, workplace: Workplace) -> None:
        self.title = f"Rollcast {version('rollcast')} PPO, {ENVS} envs"
        self._workplace = workplace

    def prepare(self) -> None:
        """Does nothing."""

    def measure(self, round_index: int) -> Figures:
        """Trains once, to the target."""
        target = ("--target-return", str(TARGET_RETURN), "--seed", str(round_index + 1))
        learner = (sys.executable, "-m", "learner", "serve", str(RUN_FILE), *target)
        actor = (sys.executable, "-m", "actor_client", "gym", "--env", ENV, "--num-envs", str(ENVS))
        return read_summary(train(self._workplace, f"round-{round_index}", learner, actor))


@contextmanager
def serving(
    command: Sequence[str | Path],
    folder: Path,
    log: Path,
    *,
    address: str = "127.0.0.1:0",
    resumes: bool = False,
    start_seconds: float = START_SECONDS,
    **options: Any,
) -> Iterator[tuple[Child, str]]:
    """Runs a learner for a block, and yields it and its address once it listens.

    Args:
        command: Program and arguments; run id, results folder and address are added.
        folder: Of the run; what is there goes, unless it is resumed.
        log: Where its output goes.
        address: Where it listens.
        resumes: Whether the run in the folder is continued.
        start_seconds: Limit of its start.
        options: Of `Child`.
    """
    addresses = folder / "address.json"
    if resumes:
        addresses.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    own = ("--run-id", folder.name, "--results-dir", folder.parent, "--address", address)
    with Child("the learner", (*command, *own, *(["--resume"] if resumes else [])), log, **options) as learner:
        learner.wait_until(addresses.exists, "it listened", start_seconds)
        yield learner, str(read_json(addresses)["address"])


def train(
    workplace: Workplace,
    run_id: str,
    learner: Sequence[str],
    actor: Sequence[str],
    *,
    cwd: Path = REPOSITORY,
    environment: Mapping[str, str] | None = None,
    cores: Sequence[Collection[int] | None] = (None, None),
) -> Mapping[str, Any]:
    """Runs a learner and an actor until both have ended, and returns the run's summary.

    Args:
        workplace: Where logs go, and the run folder, ``runs/<run_id>``; what was in it is removed.
        run_id: Of the run.
        learner: Program and arguments of the learner; run id, results folder and address are added.
        actor: Program and arguments of the actor; the learner's address is added.
        cwd: Where they are started.
        environment: Variables of the learner, added to those of this process.
        cores: Cores of the learner and of the actor; None allows all.

    Raises:
        MeasurementFailed: A process failed or hung.
    """
    folder, log = workplace.runs / run_id, workplace.log(f"{run_id}-learner")
    own, others = cores
    with serving(learner, folder, log, cwd=cwd, environment=environment, cores=own) as (process, address):
        line, log = (*actor, "--learner", address, "--name", "bench"), workplace.log(f"{run_id}-actor")
        with Child("the actor", line, log, cwd=cwd, cores=others) as child:
            wait(process, [child], RUN_SECONDS)
    return read_json(folder / "summary.json")


def wait(learner: Child, actors: Sequence[Child], timeout_seconds: float) -> None:
    """Waits until a learner and its actors have ended; an actor that fails is an error immediately.

    Raises:
        MeasurementFailed: One failed, or did not end in time.
    """

    def is_over() -> bool:
        for actor in actors:
            if not actor.is_running() and learner.is_running():
                actor.wait_for_success(0.0)
        return not learner.is_running()

    learner.wait_until(is_over, "it ended", timeout_seconds)
    for child in (learner, *actors):
        child.wait_for_success(ACTOR_END_SECONDS)


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


def read_json(path: Path) -> Mapping[str, Any]:
    """Returns a document that a run left.

    Raises:
        MeasurementFailed: It is not there, or none.
    """
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MeasurementFailed(f"the run left no {path}: {error}") from error
    return document
