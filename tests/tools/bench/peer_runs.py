"""Runs Stable-Baselines3 and Sample Factory."""

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.tools.bench.environments import SAMPLE_FACTORY, STABLE_BASELINES3
from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    TARGET_RETURN,
    Figures,
    MeasurementFailed,
)
from tests.tools.bench.processes import Child, Workplace

SCRIPTS = Path(__file__).parent / "peers"
RUN_SECONDS = 600.0
START_SECONDS = 120.0
SECONDS = 40.0
"""How long Sample Factory trains, counted from its first environment step."""

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_TIME = r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]\[\d+\] "
_BEGUN = re.compile(_TIME + r"All inference workers are ready!", re.MULTILINE)
_FRAMES = re.compile(_TIME + r"Fps is .*?Total num frames: (\d+)\.", re.MULTILINE)
_RETURN = re.compile(_TIME + r"Avg episode reward: \[\(0, '(-?[\d.]+)'\)\]", re.MULTILINE)


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
        command: list[str | Path] = [
            STABLE_BASELINES3.python,
            SCRIPTS / "stable_baselines3_cartpole.py",
            str(round_index + 1),
            str(TARGET_RETURN),
        ]
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


class SampleFactory:
    """Runs APPO with two workers of eight environments.

    It does not end by itself at the target, nor after the time it is told; so it is ended after a while, and what it
    did is read from its log.

    Args:
        workplace: Where logs and temporary files go.
    """

    name = "sf"

    def __init__(self, workplace: Workplace) -> None:
        self.title = "Sample Factory APPO"
        self._workplace = workplace

    def prepare(self) -> None:
        """Makes its virtual environment."""
        version = SAMPLE_FACTORY.ensure(self._workplace.log("install-sf"))
        self.title = f"Sample Factory {version} APPO, 2 x 8 envs"

    def measure(self, round_index: int) -> Figures:
        """Trains for a while."""
        command: list[str | Path] = [
            SAMPLE_FACTORY.python,
            SCRIPTS / "sample_factory_cartpole.py",
            str(round_index + 1),
            str(round(SECONDS)),
        ]
        log = self._workplace.log(f"sf-{round_index}")
        with Child("Sample Factory", command, log, self._workplace.environment) as child:
            child.wait_until(lambda: _BEGUN.search(_plain(child.log())) is not None, "its first step", START_SECONDS)
            deadline = time.monotonic() + SECONDS
            child.wait_until(lambda: time.monotonic() > deadline, "its time was over", 2 * SECONDS)
            text = child.log()
        return read_log(text)


@dataclass(frozen=True, slots=True)
class _Report:
    """A report in its log; `at` is seconds since its first step."""

    at: float
    value: float


def read_log(text: str) -> Figures:
    """Reads rates and returns from the log.

    The rate is that of trained frames between the first report, a few seconds after the start, and the last one.

    Raises:
        MeasurementFailed: There are fewer than two reports.
    """
    plain = _plain(text)
    begun = _BEGUN.search(plain)
    frames = _reports(_FRAMES, plain, begun)
    if len(frames) < 2:
        raise MeasurementFailed(f"Sample Factory reported {len(frames)} times in {SECONDS:.0f} s; its log says why")
    first, last = frames[0], frames[-1]
    figures = {STEPS_PER_SECOND: (last.value - first.value) / (last.at - first.at)}
    returns = _reports(_RETURN, plain, begun)
    hit = next((report.at for report in returns if report.value >= TARGET_RETURN), None)
    if hit is None:
        best = max((report.value for report in returns), default=float("nan"))
        return Figures(figures, f"not at {TARGET_RETURN:.0f} in {SECONDS:.0f} s, {best:.0f} at best")
    figures[SECONDS_TO_TARGET] = hit
    # Both lines are written within a millisecond of each other.
    figures[STEPS_TO_TARGET] = min(frames, key=lambda report: abs(report.at - hit)).value
    return Figures(figures, "it reports every 5 s")


def _plain(text: str) -> str:
    return _COLOR.sub("", text)


def _reports(pattern: re.Pattern[str], text: str, begun: re.Match[str] | None) -> list[_Report]:
    found = [(_seconds(match[1]), float(match[2])) for match in pattern.finditer(text)]
    if not found:
        return []
    start = found[0][0] if begun is None else _seconds(begun[1])
    return [_Report(at - start, value) for at, value in found]


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()
