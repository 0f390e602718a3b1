"""Measures with and without TLS and tokens: a training, and the service taking pictures as fast as it can."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.tools.bench.learner_cpu import ROWS, LearnerCPU, Side
from tests.tools.bench.measurement import Figures, MeasurementFailed, Unavailable
from tests.tools.bench.processes import REPOSITORY
from tests.tools.bench.session_runs import CPU_SHARE, Generator, Load, measure_shares, require_proc, service_child
from tests.tools.bench.workplace import Workplace

BYTES_PER_SECOND: Final = "bytes_per_second"
CPU_SECONDS_PER_GB: Final = "service_cpu_seconds_per_gb"
TRAINING: Final = "cartpole-fast"
INGEST: Final = "pixel-ingest"
TLS: Final = "-tls"
"""What the name of a measurement with TLS ends with."""

PICTURE_SIDE: Final = 84
PICTURES_PER_CHUNK: Final = 37
"""About 256 KiB."""
INGEST_SESSIONS: Final = 2
INGEST_SECONDS: Final = 15.0
SETTLE_SECONDS: Final = 2.0
_CERTS_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of both sides.

    Attributes:
        learner: Folder of `rollcast-learner certs init`.
        actor: Folder with the authority's certificate and a token.
    """

    learner: Path
    actor: Path

    @classmethod
    def make(cls, root: Path) -> Certificates:
        """Returns new files in a folder, which is replaced.

        Raises:
            Unavailable: The commands failed, because the extra `certs` is not installed.
        """
        made = cls(root / "learner", root / "actor")
        shutil.rmtree(root, ignore_errors=True)
        made.actor.mkdir(parents=True)
        _certs("init", str(made.learner))
        _certs("token", str(made.learner), "bench", "--role", "actor", "--out", str(made.actor / "token"))
        shutil.copy(made.learner / "ca.pem", made.actor / "ca.pem")
        return made


def _certs(*arguments: str) -> None:
    command = [sys.executable, "-m", "learner", "certs", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_CERTS_SECONDS, check=False)
    if done.returncode:
        raise Unavailable(f"rollcast-learner certs {arguments[0]} failed: {done.stderr.strip()[-200:]}")


class TrainingOverTLS:
    """The training of `cpu`'s row cartpole-fast.

    Args:
        workplace: Where logs, run folders and certificates go.
        is_tls: Whether it uses TLS and tokens.
    """

    def __init__(self, workplace: Workplace, *, is_tls: bool) -> None:
        self.name = f"{TRAINING}{TLS}" if is_tls else TRAINING
        self.title = f"{TRAINING}, {'TLS' if is_tls else 'plain'}"
        self._workplace = workplace
        self._is_tls = is_tls
        self._certificates: Certificates | None = None

    def prepare(self) -> None:
        """Makes the certificates."""
        if self._is_tls:
            self._certificates = Certificates.make(self._workplace.root / "certs" / self.name)

    def measure(self, round_index: int) -> Figures:
        """Trains once, all steps; with and without TLS with the same seed."""
        (row,) = (row for row in ROWS if row.name == TRAINING)
        made = self._certificates
        training = LearnerCPU(
            self._workplace,
            row,
            Side.here(),
            self.name,
            learner_options=() if made is None else ("--certs", str(made.learner)),
            actor_options=() if made is None else ("--certs", str(made.actor)),
        )
        return training.measure(round_index)


class PixelIngest:
    """The service alone, to which a few actors send pictures that cannot be compressed, as fast as credit allows.

    Args:
        workplace: Where logs and certificates go.
        is_tls: Whether it uses TLS and tokens.
        seconds: How long is measured.
    """

    def __init__(self, workplace: Workplace, *, is_tls: bool, seconds: float = INGEST_SECONDS) -> None:
        self.name = f"{INGEST}{TLS}" if is_tls else INGEST
        self.title = f"{PICTURE_SIDE}x{PICTURE_SIDE} pixels to the service, {'TLS' if is_tls else 'plain'}"
        self._workplace = workplace
        self._is_tls = is_tls
        self._seconds = seconds
        self._certificates: Certificates | None = None

    def prepare(self) -> None:
        """Makes the certificates."""
        require_proc()
        if self._is_tls:
            self._certificates = Certificates.make(self._workplace.root / "certs" / self.name)

    def measure(self, round_index: int) -> Figures:
        """Measures once, after all actors have joined."""
        name = f"{self.name}-{round_index}"
        made = self._certificates
        learner_options = () if made is None else ("--certs", str(made.learner))
        actor_options = () if made is None else ("--certs", str(made.actor))
        load = Load(INGEST_SESSIONS, self._seconds, PICTURES_PER_CHUNK, 0.0)
        with service_child(self._workplace, name, INGEST_SESSIONS, *learner_options) as (service, address):
            generator = Generator(self._workplace, name, address, load, "--pixels", str(PICTURE_SIDE), *actor_options)
            with generator.child:
                generator.wait_until_complete()
                time.sleep(SETTLE_SECONDS)
                before = generator.report()
                shares = measure_shares(service.pid, self._seconds)
                after = generator.report()
        return ingest_figures(before, after, shares[CPU_SHARE])


def ingest_figures(before: Mapping[str, Any], after: Mapping[str, Any], cpu_share: float) -> Figures:
    """Returns the figures between two reports of the generator.

    Args:
        before: The first report.
        after: The second report.
        cpu_share: Share of a core that the service used meanwhile.

    Raises:
        MeasurementFailed: Nothing was acked between them.
    """
    seconds = after["at"] - before["at"]
    sent_bytes = (after["acked_steps"] - before["acked_steps"]) * PICTURE_SIDE**2
    if seconds <= 0 or sent_bytes <= 0:
        raise MeasurementFailed("no picture was acked; the generator's log says why")
    rate = sent_bytes / seconds
    return Figures({BYTES_PER_SECOND: rate, CPU_SECONDS_PER_GB: cpu_share / (rate / 1e9)})


def contestants(workplace: Workplace) -> list[TrainingOverTLS | PixelIngest]:
    """Returns the measurements in pairs: without TLS and with it."""
    return [
        TrainingOverTLS(workplace, is_tls=False),
        TrainingOverTLS(workplace, is_tls=True),
        PixelIngest(workplace, is_tls=False),
        PixelIngest(workplace, is_tls=True),
    ]
