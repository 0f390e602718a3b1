"""Runs Stable-Baselines3."""

import json
from pathlib import Path

from tests.tools.bench.environments import STABLE_BASELINES3
from tests.tools.bench.measurement import SECONDS_TO_TARGET, STEPS_PER_SECOND, STEPS_TO_TARGET, TARGET_RETURN, Figures
from tests.tools.bench.processes import Child
from tests.tools.bench.workplace import Workplace

RUN_SECONDS = 600.0
SCRIPT = Path(__file__).parent / "peers" / "stable_baselines3_cartpole.py"


class StableBaselines3:
    """Runs PPO with the settings that its tuned collection gives for CartPole.

    Args:
        workplace: Where logs and temporary files go.
    """

    name = "sb3"

    def __init__(self, workplace: Workplace) -> None:
        self.title = "Stable-Baselines3 PPO"
        self._workplace = workplace

    def prepare(self) -> None:
        """Makes its virtual environment."""
        version = STABLE_BASELINES3.ensure(self._workplace.log("install-sb3"))
        self.title = f"Stable-Baselines3 {version} PPO, 8 envs"

    def measure(self, round_index: int) -> Figures:
        """Trains once, to the target."""
        command: list[str | Path] = [STABLE_BASELINES3.python, SCRIPT, str(round_index + 1), str(TARGET_RETURN)]
        log = self._workplace.log(f"sb3-{round_index}")
        with Child("Stable-Baselines3", command, log, self._workplace.environment) as child:
            child.wait_for_success(RUN_SECONDS)
            return read_result(child.log())


def read_result(log: str) -> Figures:
    """Returns the figures in the last line of the script's output.

    Raises:
        ValueError: It is not the script's JSON.
    """
    result = json.loads(log.strip().splitlines()[-1])
    figures = {STEPS_PER_SECOND: float(result["steps_per_second"])}
    if result["seconds_to_target"] is None:
        return Figures(figures, f"not at {TARGET_RETURN:.0f} after {result['steps']:,} steps")
    figures[SECONDS_TO_TARGET] = float(result["seconds_to_target"])
    figures[STEPS_TO_TARGET] = float(result["steps"])
    return Figures(figures)
