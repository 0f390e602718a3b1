"""Measures with and without TLS and tokens: a training, and the service taking pictures as fast as it can."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.tools.bench.learner_cpu import CPU_SECONDS, ROWS, LearnerCPU, Side
from tests.tools.bench.measurement import STEPS_PER_SECOND, Figures, MeasurementFailed, Unavailable
from tests.tools.bench.processes import REPOSITORY, Workplace
from tests.tools.bench.session_runs import Generator, Load, core_share, service
from tests.tools.bench.table import Column, Layout, Pair

BYTES_PER_SECOND: Final = "bytes_per_second"
CPU_SECONDS_PER_GB: Final = "service_cpu_seconds_per_gb"
INGEST: Final = "pixel-ingest"
PICTURE_SIDE: Final = 84
PICTURES_PER_CHUNK: Final = 37
"""About 256 KiB."""
INGEST_SESSIONS: Final = 2
INGEST_SECONDS: Final = 15.0
SETTLE_SECONDS: Final = 2.0
_CERTS_SECONDS: Final = 60.0
FAST: Final = ROWS[0]
_TRAINED: Final = (
    Column("CPU s per 100,000 steps", CPU_SECONDS, ".2f"),
    Column("trained steps/s", STEPS_PER_SECOND, ",.0f"),
)
_INGESTED: Final = (
    Column("MB/s", BYTES_PER_SECOND, ",.0f", 1e-6),
    Column("CPU s per GB", CPU_SECONDS_PER_GB, ".2f"),
)
LAYOUT: Final = Layout(
    "first: plain, second: TLS, where calls carry a token too",
    pairs=(
        Pair(FAST.name, FAST.name, f"{FAST.name}-tls", _TRAINED),
        Pair("84x84 pixels to the service", INGEST, f"{INGEST}-tls", _INGESTED),
    ),
)


class Certificates(NamedTuple):
    """The options of both sides: ``--certs`` and a folder, or nothing."""

    learner: tuple[str, ...] = ()
    actor: tuple[str, ...] = ()

    @classmethod
    def make(cls, root: Path) -> Certificates:
        """Returns options with new files in a folder, which is replaced.

        Raises:
            Unavailable: The commands failed, because the extra `certs` is not installed.
        """
        learner, actor = root / "learner", root / "actor"
        shutil.rmtree(root, ignore_errors=True)
        actor.mkdir(parents=True)
        _certs("init", str(learner))
        _certs("token", str(learner), "bench", "--role", "actor", "--out", str(actor / "token"))
        shutil.copy(learner / "ca.pem", actor / "ca.pem")
        return cls(("--certs", str(learner)), ("--certs", str(actor)))


def _certs(*arguments: str) -> None:
    command = [sys.executable, "-m", "learner", "certs", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_CERTS_SECONDS, check=False)
    if done.returncode:
        raise Unavailable(f"rollcast certs {arguments[0]} failed: {done.stderr.strip()[-200:]}")


class _Secured:
    """A measurement with or without TLS and tokens.

    Args:
        workplace: Where logs, run folders and certificates go.
        name: Without TLS.
        title: Without the kind of connection.
        is_tls: Whether it uses TLS and tokens.
    """

    def __init__(self, workplace: Workplace, name: str, title: str, *, is_tls: bool) -> None:
        self.name = f"{name}-tls" if is_tls else name
        self.title = f"{title}, {'TLS' if is_tls else 'plain'}"
        self._workplace = workplace
        self._is_tls = is_tls
        self._certificates = Certificates()

    def prepare(self) -> None:
        """Makes the certificates."""
        if self._is_tls:
            self._certificates = Certificates.make(self._workplace.root / "certs" / self.name)


class TrainingOverTLS(_Secured):
    """The training of `cpu`'s row cartpole-fast."""

    def __init__(self, workplace: Workplace, *, is_tls: bool) -> None:
        super().__init__(workplace, FAST.name, FAST.name, is_tls=is_tls)

    def measure(self, round_index: int) -> Figures:
        """Trains once, all steps; with and without TLS with the same seed."""
        learner, actor = self._certificates
        training = LearnerCPU(
            self._workplace, FAST, Side.here(), self.name, learner_options=learner, actor_options=actor
        )
        return training.measure(round_index)


class PixelIngest(_Secured):
    """The service alone, to which a few actors send pictures that cannot be compressed, as fast as credit allows."""

    def __init__(self, workplace: Workplace, *, is_tls: bool) -> None:
        super().__init__(workplace, INGEST, f"{PICTURE_SIDE}x{PICTURE_SIDE} pixels to the service", is_tls=is_tls)

    def measure(self, round_index: int) -> Figures:
        """Measures once, after all actors have joined."""
        name = f"{self.name}-{round_index}"
        load = Load(INGEST_SESSIONS, INGEST_SECONDS, PICTURES_PER_CHUNK, 0.0)
        with service(self._workplace, name, INGEST_SESSIONS, *self._certificates.learner) as (process, address):
            options = ("--pixels", str(PICTURE_SIDE), *self._certificates.actor)
            generator = Generator(self._workplace, name, address, load, *options)
            with generator.child:
                generator.wait_until_complete()
                time.sleep(SETTLE_SECONDS)
                before = generator.report()
                share = core_share(process.pid, INGEST_SECONDS)
                after = generator.report()
        return ingest_figures(before, after, share)


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
    kinds = (TrainingOverTLS, PixelIngest)
    return [kind(workplace, is_tls=is_tls) for kind in kinds for is_tls in (False, True)]
