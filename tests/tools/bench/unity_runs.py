"""Trains a scripted player with Rollcast and with ML-Agents.

The player (`tests.tools.players`) has 8 agents of CartPole and writes down each finished episode, with the decisions taken and
the seconds passed since it started; both contestants are measured by that file.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

from tests.ports import reserve_ports
from tests.tools.bench.environments import ML_AGENTS, PeerEnvironment
from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    TARGET_RETURN,
    Figures,
    MeasurementFailed,
)
from tests.tools.bench.processes import Child, Workplace
from tests.tools.players.build import make_build

RUN_FILE = Path(__file__).parent / "unity-cartpole.yaml"
EPISODES = 100
RUN_SECONDS = 900.0


class UnityTraining:
    """A contestant: a program with the command line of `mlagents-learn`, and its player.

    Args:
        name: For options and the JSON file.
        title: For the table, before its version is known.
        command: Returns program and first arguments, once `environment` is there.
        workplace: Where logs, builds and run folders go.
        environment: What must be installed; None for what this runs in.
    """

    def __init__(
        self,
        name: str,
        title: str,
        command: Callable[[], list[str | Path]],
        workplace: Workplace,
        environment: PeerEnvironment | None = None,
    ) -> None:
        self.name = name
        self.title = title
        self._command = command
        self._workplace = workplace
        self._environment = environment

    def prepare(self) -> None:
        """Makes its virtual environment."""
        if self._environment is not None:
            found = self._environment.ensure(self._workplace.log(f"install-{self.name}"))
            self.title = f"{self.title} {found}"

    def measure(self, round_index: int) -> Figures:
        """Trains once, to the target or to the end of the run file."""
        run_id = f"unity-{self.name}-{round_index}"
        folder = self._workplace.runs / run_id
        shutil.rmtree(folder, ignore_errors=True)
        episodes = folder / "episodes"
        build = make_build(folder / "build", "--episodes", str(episodes))
        command = [
            *self._command(), RUN_FILE, "--run-id", "run", "--results-dir", folder, "--force", "--env", build,
            "--base-port", str(reserve_ports()), "--seed", str(round_index + 1), "--torch-device", "cpu",
        ]  # fmt: skip
        log = self._workplace.log(run_id)
        with Child(self.title, command, log, self._workplace.environment) as child:

            def is_over() -> bool:
                found = read_episodes(_lines(episodes))
                return STEPS_TO_TARGET in found.values or not child.is_running()

            child.wait_until(is_over, "the target was reached, or the run's steps were used up", RUN_SECONDS)
        figures = read_episodes(_lines(episodes))
        if not figures.values:
            raise child.failed("ended before a player finished an episode")
        return figures


def rollcast(workplace: Workplace) -> UnityTraining:
    """Returns Rollcast's drop-in."""
    title = f"Rollcast {version('rollcast')}, one player"
    return UnityTraining("rollcast", title, lambda: [sys.executable, "-m", "actor_client.unity.dropin"], workplace)


def ml_agents(workplace: Workplace) -> UnityTraining:
    """Returns ML-Agents' own trainer."""
    program = ML_AGENTS.python.with_name("mlagents-learn")
    return UnityTraining("mlagents", "ML-Agents", lambda: [program, "--timeout-wait", "60"], workplace, ML_AGENTS)


def read_episodes(lines: Iterable[str]) -> Figures:
    """Returns speed, and steps and seconds until the mean return of 100 episodes was at the target.

    Raises:
        MeasurementFailed: A line is not the player's.
    """
    returns: deque[float] = deque(maxlen=EPISODES)
    values: dict[str, float] = {}
    for line in lines:
        try:
            episode = json.loads(line)
            returns.append(float(episode["return"]))
            steps, seconds = float(episode["decisions"]), float(episode["seconds"])
        except (ValueError, KeyError, TypeError):
            raise MeasurementFailed(f"not a line of a player: {line[:80]!r}") from None
        values[STEPS_PER_SECOND] = steps / max(seconds, 1e-3)
        if len(returns) == EPISODES and sum(returns) >= EPISODES * TARGET_RETURN:
            return Figures(values | {STEPS_TO_TARGET: steps, SECONDS_TO_TARGET: seconds})
    return Figures(values, f"not at {TARGET_RETURN:.0f} after {steps:,.0f} steps" if values else "")


def _lines(path: Path) -> list[str]:
    """Returns what is whole of a file that grows."""
    try:
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []
