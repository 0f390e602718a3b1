"""Connects many actors from one process, and reports what they see and how late this process itself is.

`python -m tests.tools.bench.sessions.generator ADDRESS PROGRESS [OPTIONS]` writes the file PROGRESS, a JSON document, once a second
until SIGTERM. Figures cover the time since all actors were present for the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.tls import ClientSecurity
from rollcast.v1 import session_pb2

from actor_client.connection import connector
from learner.shared.garbage import LongCollections
from learner.shared.platform import raise_descriptor_limit
from tests.learner.service.calls.samples import NAME, make_spec
from tests.tools.bench.sessions.actor import BareActor, Latencies, Traffic, make_rows

PROGRESS_SECONDS: Final = 0.5
LAG_SECONDS: Final = 0.05
JOINS_PER_SECOND: Final = 100
DESCRIPTORS_PER_ACTOR: Final = 2
OTHER_DESCRIPTORS: Final = 256
AUTHORITY, TOKEN = "ca.pem", "token"


class AtOnce(Executor):
    """Runs each call in place: a thousand small policies a second cost less than their way to another thread and back."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Runs a call, and returns its result or error."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **options))
        except Exception as error:  # noqa: BLE001 - for who waits
            future.set_exception(error)
        return future


class Renewals(Latencies):
    """Measures each renewal of a lease that is answered, in place of the function that makes the call."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        super().__init__()
        self._call = call

    async def __call__(self, *args: Any, **options: Any) -> Any:
        """Makes the call."""
        began = time.monotonic()
        answer = await self._call(*args, **options)
        if isinstance(args[1], session_pb2.RenewSessionRequest):  # not those that open and close a session
            self.add(time.monotonic() - began)
        return answer


class Crowd:
    """All actors of this process.

    Args:
        options: See `main`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._acks, self._lags = Latencies(), Latencies()
        self._renewals = Renewals(connector.call)  # type: ignore[attr-defined]
        connector.call = self._renewals  # type: ignore[attr-defined]
        spec = _picture_spec(options.pixels) if options.pixels else make_spec()
        rows = [make_rows(spec, options.steps, seed) for seed in range(16)]
        folder = options.certs
        security = ClientSecurity() if folder is None else ClientSecurity(folder / AUTHORITY, token_file=folder / TOKEN)
        workers = AtOnce()
        self._actors = [
            BareActor(
                options.address,
                f"bench-{index}",
                Traffic(spec, rows[index % len(rows)], options.period),
                acks=self._acks,
                workers=workers,
                security=security,
            )
            for index in range(options.sessions)
        ]
        self._complete_at: float | None = None
        self._began = (0.0, 0, 0)

    async def run(self) -> None:
        """Joins and sends until SIGTERM."""
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        tasks = [asyncio.create_task(self._measure_lag()), asyncio.create_task(self._write())]
        for actor in self._actors:
            tasks.append(asyncio.create_task(actor.run()))
            await asyncio.sleep(1 / JOINS_PER_SECOND)
        await stop.wait()
        self._write_once()

    async def _measure_lag(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(LAG_SECONDS)
            self._lags.add(max(0.0, time.monotonic() - began - LAG_SECONDS))

    async def _write(self) -> None:
        while True:
            if self._complete_at is None and all(actor.is_present for actor in self._actors):
                self._begin()
            self._write_once()
            await asyncio.sleep(PROGRESS_SECONDS)

    def _begin(self) -> None:
        """Begins the figures, now that all actors are present."""
        now = self._complete_at = time.monotonic()
        self._began = (now, self._acked_steps, self._version)
        for latencies in (self._acks, self._renewals, self._lags):
            latencies.seconds.clear()
        for actor in self._actors:
            actor.note_session()

    @property
    def _acked_steps(self) -> int:
        return sum(actor.acked_steps for actor in self._actors)

    @property
    def _version(self) -> int:
        return max(actor.version for actor in self._actors)

    def _write_once(self) -> None:
        path: Path = self._options.progress
        part = path.with_suffix(".part")
        part.write_text(json.dumps(self._document()), encoding="utf-8")
        part.replace(path)

    def _document(self) -> dict[str, Any]:
        now = time.monotonic()
        since, steps, version = self._began
        seconds = max(now - since, 1e-9)
        is_complete = self._complete_at is not None
        return {
            "at": now,
            "complete_at": self._complete_at,
            "seconds": seconds if is_complete else 0.0,
            "present": sum(actor.is_present for actor in self._actors),
            "oldest_generation": min(actor.generation for actor in self._actors),
            "lost": sum(actor.has_lost_session for actor in self._actors) if is_complete else 0,
            "errors": sorted({actor.error for actor in self._actors if actor.error}),
            "acks": _spread(self._acks),
            "renewals": _spread(self._renewals),
            "lag": _spread(self._lags),
            "versions": self._version - version,
            "acked_steps": self._acked_steps - steps,
        }


def _spread(latencies: Latencies) -> dict[str, float]:
    if not latencies.seconds:
        return {"count": 0}
    median, p99 = np.quantile(latencies.seconds, [0.5, 0.99])
    return {"count": len(latencies.seconds), "median": float(median), "p99": float(p99)}


def _picture_spec(side: int) -> BehaviorSpec:
    picture = ObservationSpec(
        "picture", np.dtype(np.uint8), (side, side, 1), ObservationKind.IMAGE, layout=ImageLayout.HWC, scale=255.0
    )
    return BehaviorSpec(NAME, (picture,), ActionSpec(discrete_branches=(2,)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.sessions.generator")
    parser.add_argument("address")
    parser.add_argument("progress", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=16, help="steps of a chunk")
    parser.add_argument("--period", type=float, default=5.0, help="seconds from one chunk to the next; 0: by credit")
    parser.add_argument("--pixels", type=int, default=0, help="side of a picture; 0: four numbers")
    parser.add_argument("--certs", type=Path, default=None, help=f"folder with {AUTHORITY} and a file {TOKEN}")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    raise_descriptor_limit(DESCRIPTORS_PER_ACTOR * options.sessions + OTHER_DESCRIPTORS)

    LongCollections().start()

    async def run() -> None:
        await Crowd(options).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
