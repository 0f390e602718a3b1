"""Measures many sessions: with a learner that trains, with the service alone, and over a restart of the learner."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from learner.common.platform import usage_with_children
from tests.tools.bench.measurement import Figures, MeasurementFailed, Unavailable
from tests.tools.bench.processes import Child
from tests.tools.bench.rollcast_run import RUN_FILE, START_SECONDS
from tests.tools.bench.workplace import Workplace

LOST: Final = "lost_sessions"
BREAKS: Final = "broken_connections"
RENEW_P99: Final = "renew_p99_seconds"
ACK_MEDIAN: Final = "ack_median_seconds"
ACK_P99: Final = "ack_p99_seconds"
CPU_SHARE: Final = "learner_cpu_share"
LOOP_SHARE: Final = "event_loop_cpu_share"
GENERATOR_SHARE: Final = "generator_cpu_share"
GENERATOR_LAG: Final = "generator_lag_p99_seconds"
CHUNKS: Final = "chunks_per_second"
VERSIONS: Final = "versions"
BACK_SECONDS: Final = "seconds_until_all_are_back"
LISTEN_SECONDS: Final = "seconds_until_it_listens"
"""Part of `BACK_SECONDS` before the second learner listens, most of which is Python's imports."""

JOIN_SECONDS: Final = 300.0
RETURN_SECONDS: Final = 300.0
BEFORE_KILL_SECONDS: Final = 20.0
"""Time with all sessions before the learner is killed; covers some recovery checkpoints."""
CHECKPOINT_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 5.0
"""Time between the last join and the first figure."""
_NEVER: Final = 1_000_000_000
_ENDED: Final = "the measured process ended; its log says why"


@dataclass(frozen=True, slots=True)
class Load:
    """What the generator sends.

    Attributes:
        sessions: Number of sessions.
        seconds: How long is measured.
        chunk_steps: Steps of a chunk.
        period_seconds: Time from one chunk of a session to the next.
    """

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
            BREAKS: float(report["breaks"]),
            RENEW_P99: report["renewals"]["p99"],
            ACK_MEDIAN: report["acks"]["median"],
            ACK_P99: report["acks"]["p99"],
            CHUNKS: report["acks"]["count"] / report["seconds"],
            VERSIONS: float(report["versions"]),
            GENERATOR_SHARE: report["cpu_share"],
            GENERATOR_LAG: report["lag"]["p99"],
        }


class TrainingUnderLoad:
    """A learner that trains and publishes while all sessions send.

    Args:
        workplace: Where logs and run folders go.
        load: What the generator sends.
    """

    name = "sessions-training"

    def __init__(self, workplace: Workplace, load: Load) -> None:
        self.title = f"{load.sessions:,} sessions, a learner that trains"
        self._workplace = workplace
        self._load = load

    def prepare(self) -> None:
        """Checks that the system shows what a process uses."""
        require_proc()

    def measure(self, round_index: int) -> Figures:
        """Measures once, after all sessions have joined."""
        name = f"{self.name}-{round_index}"
        learner = learner_child(self._workplace, name, self._load)
        with learner:
            address = wait_for_address(learner, self._workplace.runs / name)
            generator = Generator(self._workplace, name, address, self._load)
            with generator.child:
                generator.wait_until_complete()
                time.sleep(SETTLE_SECONDS)
                shares = measure_shares(learner.pid, self._load.seconds)
                figures = generator.figures() | shares
        return Figures(figures)


class ServiceUnderLoad:
    """The service without trainers, which publishes a version each second.

    Args:
        workplace: Where logs go.
        load: What the generator sends.
    """

    name = "sessions-service"

    def __init__(self, workplace: Workplace, load: Load) -> None:
        self.title = f"{load.sessions:,} sessions, the service alone"
        self._workplace = workplace
        self._load = load

    def prepare(self) -> None:
        """Checks that the system shows what a process uses."""
        require_proc()

    def measure(self, round_index: int) -> Figures:
        """Measures once, after all sessions have joined."""
        name = f"{self.name}-{round_index}"
        with service_child(self._workplace, name, self._load.sessions) as (service, address):
            generator = Generator(self._workplace, name, address, self._load)
            with generator.child:
                generator.wait_until_complete()
                time.sleep(SETTLE_SECONDS)
                shares = measure_shares(service.pid, self._load.seconds)
                return Figures(generator.figures() | shares)


class RestartUnderLoad:
    """A learner that is killed and started again while all sessions send.

    Args:
        workplace: Where logs and run folders go.
        load: What the generator sends.
    """

    name = "sessions-restart"

    def __init__(self, workplace: Workplace, load: Load) -> None:
        self.title = f"{load.sessions:,} sessions, killed and restarted"
        self._workplace = workplace
        self._load = load

    def prepare(self) -> None:
        """Does nothing."""

    def measure(self, round_index: int) -> Figures:
        """Kills the learner once and waits until all sessions send to the next one."""
        name = f"{self.name}-{round_index}"
        address = f"127.0.0.1:{free_port()}"
        with learner_child(self._workplace, name, self._load, address=address) as learner:
            wait_for_address(learner, self._workplace.runs / name)
            generator = Generator(self._workplace, name, address, self._load)
            with generator.child:
                generator.wait_until_complete()
                time.sleep(BEFORE_KILL_SECONDS)
                os.kill(learner.pid, signal.SIGKILL)
                killed_at = time.monotonic()
                with learner_child(self._workplace, name, self._load, address=address, resume=True) as second:
                    second.wait_until(lambda: "listening" in second.log(), "it listened", START_SECONDS)
                    listens_at = time.monotonic()
                    generator.child.wait_until(
                        lambda: is_back(generator.report(), self._load.sessions, killed_at),
                        "all sessions were back",
                        RETURN_SECONDS,
                    )
                    report = generator.report()
        return Figures(
            {
                BACK_SECONDS: report["at"] - killed_at,
                LISTEN_SECONDS: listens_at - killed_at,
                LOST: float(report["lost"]),
                GENERATOR_LAG: report["lag"]["p99"],
            }
        )


def is_back(report: Mapping[str, Any], sessions: int, killed_at: float) -> bool:
    """Returns whether all sessions send to the learner that was started after the kill.

    Args:
        report: The newest report of the generator.
        sessions: Number of sessions.
        killed_at: When the first learner was killed, in monotonic seconds.
    """
    return bool(report["at"] > killed_at and report["present"] == sessions and report["oldest_generation"] > 1)


SessionRun: TypeAlias = TrainingUnderLoad | ServiceUnderLoad | RestartUnderLoad
MODES: Final[Mapping[str, Callable[[Workplace, Load], SessionRun]]] = MappingProxyType(
    {"training": TrainingUnderLoad, "service": ServiceUnderLoad, "restart": RestartUnderLoad}
)


def contestants(workplace: Workplace, modes: Collection[str], load: Load) -> list[SessionRun]:
    """Returns the measurements of the given modes; none stands for all."""
    return [make(workplace, load) for mode, make in MODES.items() if not modes or mode in modes]


def learner_child(
    workplace: Workplace, name: str, load: Load, *, address: str = "127.0.0.1:0", resume: bool = False
) -> Child:
    """Returns a learner that trains without an end, as a process that is not started yet.

    Args:
        workplace: Where its log and its run folder, ``runs/<name>``, go; an earlier folder is removed unless it resumes.
        name: Of the measurement.
        load: What it must bear: about five seconds' steps are an update.
        address: Where it listens.
        resume: Whether it continues the run in the folder.
    """
    folder = workplace.runs / name
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    own, batch = "behaviors.CartPole", 512
    steps = load.sessions * load.chunk_steps
    settings = [
        f"{own}.hyperparameters.buffer_size={max(batch, steps // batch * batch)}",
        f"{own}.max_steps={_NEVER}",
        f"{own}.checkpoint_interval={_NEVER}",
        f"rollcast.max_sessions={max(1024, 2 * load.sessions)}",
        f"rollcast.checkpoint_seconds={CHECKPOINT_SECONDS}",
        "rollcast.target_return=null",
        "rollcast.torch_threads=1",
        "rollcast.http=false",
    ]
    command: list[str | Path] = [
        *(sys.executable, "-m", "learner", "serve", RUN_FILE, "--torch-device", "cpu"),
        *("--run-id", name, "--results-dir", workplace.runs, "--address", address),
        *(["--resume"] if resume else []),
        *(part for setting in settings for part in ("--set", setting)),
    ]
    return Child("the learner", command, workplace.log(f"{name}-{'second' if resume else 'learner'}"))


def wait_for_address(learner: Child, folder: Path) -> str:
    """Waits until a learner listens, and returns its address."""
    path = folder / "address.json"
    learner.wait_until(path.exists, "it listened", START_SECONDS)
    return str(json.loads(path.read_text(encoding="utf-8"))["address"])


class service_child:  # noqa: N801 - used like a function
    """Runs the service alone within a block, and gives it with its address.

    Args:
        workplace: Where its log goes.
        name: Of the measurement.
        sessions: How many it must bear.
        options: For the process.
    """

    def __init__(self, workplace: Workplace, name: str, sessions: int, *options: str) -> None:
        self._address = workplace.root / f"{name}-address.json"
        self._address.unlink(missing_ok=True)
        command: list[str | Path] = [
            *(sys.executable, "-m", "tests.tools.bench.sessions.service"),
            self._address,
            *("--sessions", str(sessions), *options),
        ]
        self._child = Child("the service", command, workplace.log(f"{name}-service"))

    def __enter__(self) -> tuple[Child, str]:
        child = self._child.__enter__()
        try:
            child.wait_until(self._address.exists, "it listened", START_SECONDS)
        except BaseException:
            child.end()
            raise
        return child, str(json.loads(self._address.read_text(encoding="utf-8"))["address"])

    def __exit__(self, *_error: object) -> None:
        self._child.end()


def require_proc() -> None:
    """Checks that the system shows what a process uses.

    Raises:
        Unavailable: It does not; only Linux does.
    """
    if not Path("/proc/self/stat").exists():
        raise Unavailable("this system has no /proc, which says how much of a core a process uses")


def measure_shares(pid: int, seconds: float) -> dict[str, float]:
    """Waits, and returns which share of one core a process with its children and its event loop used meanwhile."""
    loop = Path(f"/proc/{pid}/task/{pid}/stat")  # its main thread
    began, whole_before, loop_before = time.monotonic(), _with_children(pid), cpu_seconds(loop)
    time.sleep(seconds)
    waited = time.monotonic() - began
    loop_after, whole_after = cpu_seconds(loop), _with_children(pid)  # the time of the part within the whole's
    # The clocks count whole ticks: without rounding, sums of floats make equal times unequal.
    whole, loop_time = round(whole_after - whole_before, 6), round(loop_after - loop_before, 6)
    return {CPU_SHARE: whole / waited, LOOP_SHARE: loop_time / waited}


def _with_children(pid: int) -> float:
    """Returns the CPU time of a process and its children.

    Raises:
        MeasurementFailed: It has ended.
    """
    used = usage_with_children(pid)
    if used is None:
        raise MeasurementFailed(_ENDED)
    return used[0]


def cpu_seconds(path: Path) -> float:
    """Returns the CPU time of a process or thread, given its file `stat`.

    Raises:
        MeasurementFailed: It has ended.
    """
    try:
        fields = path.read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise MeasurementFailed(_ENDED) from None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Returns a port that is free at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
