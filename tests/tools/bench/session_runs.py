"""Measures many sessions: with a learner that trains, with the service alone, and over a restart of the learner."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from learner.shared.platform import usage_with_children
from tests.tools.bench.measurement import Figures, MeasurementFailed
from tests.tools.bench.processes import Child, Workplace
from tests.tools.bench.rollcast_run import RUN_FILE, START_SECONDS, serving
from tests.tools.bench.table import Column, Layout

LOST: Final = "lost_sessions"
RENEW_P99: Final = "renew_p99_seconds"
ACK_MEDIAN: Final = "ack_median_seconds"
ACK_P99: Final = "ack_p99_seconds"
CPU_SHARE: Final = "learner_cpu_share"
GENERATOR_LAG: Final = "generator_lag_p99_seconds"
CHUNKS: Final = "chunks_per_second"
VERSIONS: Final = "versions"
BACK_SECONDS: Final = "seconds_until_all_are_back"

JOIN_SECONDS: Final = 300.0
RETURN_SECONDS: Final = 300.0
BEFORE_KILL_SECONDS: Final = 20.0
"""Time with all sessions before the learner is killed; covers some recovery checkpoints."""
CHECKPOINT_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 5.0
"""Time between the last join and the first figure."""
_NEVER: Final = 1_000_000_000
MODES: Final[Mapping[str, str]] = {
    "training": "a learner that trains",
    "service": "the service alone",
    "restart": "killed and restarted",
}
"""What runs, by the name of the mode."""
LAYOUT: Final = Layout(
    "cores: CPU time of the learner's process over wall time. Renewals and acks are measured in the generator, so its own lag "
    "is in them: where it is not much smaller than they are, the machine was too busy to measure",
    (
        Column("lost", LOST, ",.0f"),
        Column("renew p99 s", RENEW_P99, ".3f"),
        Column("ack median s", ACK_MEDIAN, ".4f"),
        Column("ack p99 s", ACK_P99, ".4f"),
        Column("cores", CPU_SHARE, ".2f"),
        Column("chunks/s", CHUNKS, ",.0f"),
        Column("versions", VERSIONS, ",.0f"),
        Column("back after s", BACK_SECONDS, ".1f"),
        Column("generator's lag p99 s", GENERATOR_LAG, ".4f"),
    ),
)


@dataclass(frozen=True, slots=True)
class Load:
    """What the generator sends."""

    sessions: int = 1000
    seconds: float = 300.0
    chunk_steps: int = 16
    period_seconds: float = 5.0


class Generator:
    """The process with the sessions, and what it last reported.

    Args:
        workplace: Where its log goes.
        name: Of the measurement.
        address: Of the learner.
        load: What it sends.
        options: Further options of the process.
    """

    def __init__(self, workplace: Workplace, name: str, address: str, load: Load, *options: str) -> None:
        self._progress = workplace.root / f"{name}-progress.json"
        self._progress.unlink(missing_ok=True)
        command: list[str | Path] = [
            *(sys.executable, "-m", "tests.tools.bench.sessions.generator", address, self._progress),
            *("--sessions", str(load.sessions), "--steps", str(load.chunk_steps), "--period", str(load.period_seconds)),
            *options,
        ]
        self.child = Child("the generator", command, workplace.log(f"{name}-generator"))

    def wait_until_complete(self) -> None:
        """Waits until all sessions are present."""
        self.child.wait_until(
            lambda: self.report().get("complete_at") is not None, "all sessions were present", JOIN_SECONDS
        )

    def report(self) -> Mapping[str, Any]:
        """Returns the newest report; empty before the first."""
        try:
            report: Mapping[str, Any] = json.loads(self._progress.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return report

    def figures(self) -> dict[str, float]:
        """Returns the figures of the newest report.

        Raises:
            MeasurementFailed: No chunk was acked, or no renewal answered.
        """
        report = self.report()
        if not (report["acks"]["count"] and report["renewals"]["count"]):
            raise self.child.failed("saw no ack or no renewal; measure longer")
        return {
            LOST: float(report["lost"]),
            RENEW_P99: report["renewals"]["p99"],
            ACK_MEDIAN: report["acks"]["median"],
            ACK_P99: report["acks"]["p99"],
            CHUNKS: report["acks"]["count"] / report["seconds"],
            VERSIONS: float(report["versions"]),
            GENERATOR_LAG: report["lag"]["p99"],
        }


class Sessions:
    """Sessions that all send, in one of the modes.

    Args:
        workplace: Where logs and run folders go.
        load: What the generator sends.
        mode: One of `MODES`.
    """

    def __init__(self, workplace: Workplace, load: Load, mode: str) -> None:
        self.name = f"sessions-{mode}"
        self.title = f"{load.sessions:,} sessions, {MODES[mode]}"
        self._workplace = workplace
        self._load = load
        self._mode = mode

    def prepare(self) -> None:
        """Does nothing."""

    def measure(self, round_index: int) -> Figures:
        """Measures once, after all sessions have joined."""
        name = f"{self.name}-{round_index}"
        started = (
            service(self._workplace, name, self._load.sessions) if self._mode == "service" else self._learner(name)
        )
        with started as (learner, address):
            generator = Generator(self._workplace, name, address, self._load)
            with generator.child:
                generator.wait_until_complete()
                if self._mode == "restart":
                    return self._restart(name, address, learner, generator)
                time.sleep(SETTLE_SECONDS)
                share = core_share(learner.pid, self._load.seconds)
                return Figures(generator.figures() | {CPU_SHARE: share})

    def _restart(self, name: str, address: str, learner: Child, generator: Generator) -> Figures:
        """Kills the learner once and waits until all sessions send to the next one."""
        time.sleep(BEFORE_KILL_SECONDS)
        os.kill(learner.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        with self._learner(name, address=address, resumes=True):
            generator.child.wait_until(
                lambda: is_back(generator.report(), self._load.sessions, killed_at), "all were back", RETURN_SECONDS
            )
            report = generator.report()
        back_seconds = report["at"] - killed_at
        return Figures({BACK_SECONDS: back_seconds, LOST: float(report["lost"]), GENERATOR_LAG: report["lag"]["p99"]})

    def _learner(
        self, name: str, address: str = "127.0.0.1:0", *, resumes: bool = False
    ) -> AbstractContextManager[tuple[Child, str]]:
        """Runs a learner that trains without an end; about five seconds' steps are an update."""
        own, batch = "behaviors.CartPole", 512
        steps = self._load.sessions * self._load.chunk_steps
        settings = [
            f"{own}.hyperparameters.buffer_size={max(batch, steps // batch * batch)}",
            f"{own}.max_steps={_NEVER}",
            f"{own}.checkpoint_interval={_NEVER}",
            f"rollcast.max_sessions={max(1024, 2 * self._load.sessions)}",
            f"rollcast.checkpoint_seconds={CHECKPOINT_SECONDS}",
            "rollcast.target_return=null",
            "rollcast.torch_threads=1",
            "rollcast.http=false",
        ]
        command: tuple[str | Path, ...] = (
            *(sys.executable, "-m", "learner", "serve", RUN_FILE, "--torch-device", "cpu"),
            *(part for setting in settings for part in ("--set", setting)),
        )
        log = self._workplace.log(f"{name}-{'second' if resumes else 'learner'}")
        return serving(command, self._workplace.runs / name, log, address=address, resumes=resumes)


def is_back(report: Mapping[str, Any], sessions: int, killed_at: float) -> bool:
    """Returns whether all sessions send to the learner that was started after the kill.

    Args:
        report: The newest report of the generator.
        sessions: Number of sessions.
        killed_at: When the first learner was killed, in monotonic seconds.
    """
    return bool(report["at"] > killed_at and report["present"] == sessions and report["oldest_generation"] > 1)


def contestants(workplace: Workplace, modes: Collection[str], load: Load) -> list[Sessions]:
    """Returns the measurements of the given modes; none stands for all."""
    return [Sessions(workplace, load, mode) for mode in MODES if not modes or mode in modes]


@contextmanager
def service(workplace: Workplace, name: str, sessions: int, *options: str) -> Iterator[tuple[Child, str]]:
    """Runs the service alone within a block, and yields it and its address.

    Args:
        workplace: Where its log goes.
        name: Of the measurement.
        sessions: How many it must bear.
        options: For the process.
    """
    file = workplace.root / f"{name}-address.json"
    file.unlink(missing_ok=True)
    command: tuple[str | Path, ...] = (
        sys.executable,
        "-m",
        "tests.tools.bench.sessions.service",
        file,
        "--sessions",
        str(sessions),
        *options,
    )
    with Child("the service", command, workplace.log(f"{name}-service")) as child:
        child.wait_until(file.exists, "it listened", START_SECONDS)
        yield child, str(json.loads(file.read_text(encoding="utf-8"))["address"])


def core_share(pid: int, seconds: float) -> float:
    """Waits, and returns which share of one core a process with its children used meanwhile."""
    began, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and its children.

    Raises:
        MeasurementFailed: It has ended.
    """
    used = usage_with_children(pid)
    if used is None:
        raise MeasurementFailed("the measured process ended; its log says why")
    return used[0]
