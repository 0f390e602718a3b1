"""Runs the service without trainers: everything is taken at once, and a version is published each second.

`python -m tests.tools.bench.sessions.service ADDRESS_FILE [OPTIONS]` writes its address to ADDRESS_FILE and serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from learner.link.channel import as_it_is
from learner.link.to_front import Pace
from learner.service.calls.server import require_descriptors
from learner.service.identity.setup import identity_of
from learner.shared.settings.options import RunOptions
from tests.learner.service.calls.harness import Learner
from tests.learner.service.calls.samples import NAME, make_policy

SETTLE_SECONDS: Final = 0.1
"""A trainer reports about so often."""
POLICY_BYTES: Final = 21_000
"""CartPole's policy with two layers of 64 has about so many."""
TIME_HORIZON: Final = 64
"""An actor may always take so many steps, which a chunk must not exceed."""
AHEAD_STEPS: Final = 1_000_000


async def serve(options: argparse.Namespace) -> None:
    """Serves until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    identity = {} if options.certs is None else {"certs": str(options.certs)}
    settings = {"max_sessions": max(1024, 2 * options.sessions), **identity}
    run = RunOptions.model_validate({"behaviors": {NAME: {"time_horizon": TIME_HORIZON}}, "rollcast": settings})
    require_descriptors(run.rollcast)
    learner = Learner(run, transport=as_it_is, identity=identity_of(run.rollcast))
    await learner.server.start()
    try:
        part = options.address_file.with_suffix(".part")
        part.write_text(json.dumps({"address": f"127.0.0.1:{learner.server.port}"}), encoding="utf-8")
        part.replace(options.address_file)
        await asyncio.gather(_publish(learner, stop, options.publish), _settle(learner, stop))
    finally:
        await learner.server.stop()


async def _publish(learner: Learner, stop: asyncio.Event, seconds: float) -> None:
    for version in itertools.count(1):
        if await _stops(stop, seconds):
            return
        learner.publish(make_policy(version, size=POLICY_BYTES))


async def _settle(learner: Learner, stop: asyncio.Event) -> None:
    while not await _stops(stop, SETTLE_SECONDS):
        if learner.behaviors.by_index(0) is None:
            continue
        taken = sum(item.chunk.rows for item in learner.trainers.take())
        learner.trainers.settle(trained=taken, pace=Pace(ahead_limit_steps=AHEAD_STEPS))


async def _stops(stop: asyncio.Event, seconds: float) -> bool:
    """Waits, and returns whether the process ends."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.sessions.service")
    parser.add_argument("address_file", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--publish", type=float, default=1.0, help="seconds from one version to the next")
    parser.add_argument("--certs", type=Path, default=None, help="folder of rollcast certs init")
    asyncio.run(serve(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
