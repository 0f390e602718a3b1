"""Runs `python -m tests.nightly.chaos.soak`: learner and actors train without faults, and their memory must not grow."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.nightly.chaos.resources import MIB, rss_bytes, slope_per_second

SECONDS = 1800.0
SETTLE_SECONDS = 600.0
"""Caches, arenas of the allocator and windows of statistics fill first."""
SAMPLE_SECONDS = 5.0
START_SECONDS = 240.0
SPAN_SECONDS = 600.0
MOST_MIB_A_SPAN = 1.0
ACTORS = 2
NAME = "CartPole"


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory of one process."""

    name: str
    mib: float
    mib_a_span: float

    def __str__(self) -> str:
        return f"{self.name}: {self.mib:.1f} MiB, {self.mib_a_span:+.2f} MiB in ten minutes"


def soak(folder: Path, seconds: float, settle_seconds: float, say: Callable[[str], object]) -> list[Growth]:
    """Trains for some seconds, and returns the growth of each process after the first ones."""
    settings = cartpole(max_steps=10**12, summary_freq=20_000)
    run_file = write_run(folder, {NAME: settings}, lease_seconds=15.0)
    with processes_in(folder) as processes:
        learner, *actors = children = _start(processes, run_file)
        (trainers,) = learner.trainers
        pids = {"service": learner.pid, "trainers": trainers, **{actor.name: actor.pid for actor in actors}}
        points: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            for child in children:
                assert child.is_running, child.said()
            used = {name: rss_bytes(pid) / MIB for name, pid in pids.items()}
            assert all(used.values()), f"a process has ended: {used}"
            for name, mib in used.items():
                if now >= settle_seconds:
                    points[name].append((now, mib))
            say(f"{now:6.0f} s  " + "  ".join(f"{name} {mib:.1f} MiB" for name, mib in used.items()))
            time.sleep(SAMPLE_SECONDS)
    return [_growth(name, measured) for name, measured in points.items()]


def _start(processes: Processes, run_file: Path) -> tuple[LearnerProcess, *tuple[Child, ...]]:
    learner = processes.learner(run_file)
    wait_until((learner.folder / "address.json").exists, "it listens", seconds=START_SECONDS, said=learner.said)
    options = ("--num-envs", "4", "--behavior", NAME)
    actors = [processes.actor(learner.address, "CartPole-v1", *options, name=f"actor{n}") for n in range(ACTORS)]
    wait_until(lambda: learner.behavior(NAME).version > 1, "it trains", seconds=START_SECONDS, said=learner.said)
    return learner, *actors


def _growth(name: str, points: list[tuple[float, float]]) -> Growth:
    mean = sum(value for _, value in points) / len(points)
    return Growth(name, mean, slope_per_second(points) * SPAN_SECONDS)


def main() -> int:
    """Returns 0 if no process grows by more than the limit."""
    parser = argparse.ArgumentParser(description="Trains without faults, and measures the memory of each process.")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument(
        "--settle", type=float, help=f"not measured at the start; default {SETTLE_SECONDS:g} or a third"
    )
    given = parser.parse_args()
    settle_seconds = min(SETTLE_SECONDS, given.seconds / 3) if given.settle is None else given.settle
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), given.seconds, settle_seconds, lambda line: print(line, flush=True))  # noqa: T201
    for growth in found:
        print(growth)  # noqa: T201
    return 0 if all(growth.mib_a_span < MOST_MIB_A_SPAN for growth in found) else 1


if __name__ == "__main__":
    sys.exit(main())
