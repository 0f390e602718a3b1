"""Measures what a hostile client with a valid token costs the honest ones: `python -m tests.tools.bench hostile`.

A learner trains CartPole with two honest actors. In alternating blocks, a client of another principal does nothing, or does
what the reviewed faults allowed (`tests.tools.bench.hostile_client`). A probe of the honest principal sends a chunk of one
statistic twenty times a second and measures the time until its ack. The order of the blocks changes with each pair.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.auth import Principal, Role, TokenRow, make_token, token_hash
from rollcast.enums import ColumnRole
from rollcast.trajectories import Chunk

from learner.cli.operator import Operator
from learner.shared.observe.address import read_addresses
from tests.e2e.state import state_of
from tests.learner.service.calls.harness import Actor
from tests.nightly.chaos.resources import rss_bytes
from tests.tools.bench.hostile_client import cartpole
from tests.tools.bench.measurement import TARGET_RETURN, MeasurementFailed
from tests.tools.bench.processes import REPOSITORY, Child, Workplace
from tests.tools.bench.rollcast_run import ENV, START_SECONDS, serving

RUN_ID: Final = "hostile"
RUN_FILE: Final = REPOSITORY / "learner" / "run_files" / "cartpole.yaml"
SETTINGS: Final = (
    "rollcast.target_return=501",  # out of reach: a run that ends was ended by invented returns
    "behaviors.CartPole.max_steps=1e9",
    "behaviors.CartPole.network_settings.normalize=true",  # which extreme values could spoil
)
ACTORS: Final = 2
PROBE_SECONDS: Final = 0.05
SETTLING_SECONDS: Final = 1.0
"""Beginning of each block whose acks do not count: those of the previous block are still under way."""
MAX_MEDIAN_RATIO: Final = 2.0
MAX_P99_RATIO: Final = 3.0
LEAST_P99_SECONDS: Final = 0.1
MAX_ACK_SECONDS: Final = 1.0
MAX_MEMORY_BYTES: Final = 200 * 2**20
PROBE_LIMIT_SECONDS: Final = 60.0

Tell = Callable[[str], None]


@dataclass(slots=True)
class Block:
    """A block of time."""

    is_hostile: bool
    acks: list[float]
    memory: list[int]


class Probe:
    """An honest client that measures acks, in a thread of its own."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._acks: list[tuple[float, float]] = []
        self._sent_at: float | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def __enter__(self) -> Probe:
        """Begins to measure."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        self._stopped.set()
        self._thread.join(PROBE_LIMIT_SECONDS)

    def acks(self, since: float) -> list[float]:
        """Returns the seconds of the acks of chunks that were sent after a moment; one that is missing counts so far.

        Raises:
            MeasurementFailed: The probe's stream ended.
        """
        if self._failure is not None:
            raise MeasurementFailed(f"the honest probe failed: {self._failure!r}")
        with self._lock:
            found = [seconds for sent_at, seconds in self._acks if sent_at >= since]
            if self._sent_at is not None and self._sent_at >= since:
                found.append(time.monotonic() - self._sent_at)
        return found

    def _run(self) -> None:
        try:
            asyncio.run(self._measure())
        except BaseException as error:  # noqa: BLE001 - reported by `acks`
            self._failure = error

    async def _measure(self) -> None:
        async with Actor(int(self._address.rpartition(":")[2]), "probe", token=self._token) as actor:
            session = await actor.open(protocol_revision=1)
            await actor.declare(cartpole())
            upload = await actor.upload()
            await upload.until("opened")
            sequence = session.next_sequence
            while not self._stopped.is_set():
                began = time.monotonic()
                with self._lock:
                    self._sent_at = began
                await upload.send(_statistic(session.generation, sequence))
                await upload.ack(sequence)
                now = time.monotonic()
                with self._lock:
                    self._acks.append((began, now - began))
                    self._sent_at = None
                sequence += 1
                await asyncio.sleep(max(0.0, PROBE_SECONDS - (now - began)))


def _statistic(generation: int, sequence: int) -> Chunk:
    """Returns a chunk with one statistic, which needs no credit and trains nothing."""
    columns: dict[str, NDArray[Any]] = {
        "stat/key": np.zeros(1, np.uint32),
        "stat/env": np.zeros(1, np.uint32),
        "stat/value": np.ones(1, np.float32),
        "stat/aggregation": np.ones(1, np.uint8),
    }
    return Chunk(
        sequence=sequence,
        generation=generation,
        agents=1,
        stat_keys=("probe",),
        columns=columns,
        roles=dict.fromkeys(columns, ColumnRole.STAT),
    )


def measure(workplace: Workplace, pairs: int, block_seconds: float, tell: Tell) -> dict[str, Any]:
    """Measures pairs of a quiet and a hostile block.

    Args:
        workplace: Where logs and the run folder go.
        pairs: Number of pairs.
        block_seconds: Length of a block.
        tell: Receives progress.

    Returns:
        The document with all figures.

    Raises:
        MeasurementFailed: A process ended, or the honest probe lost its stream.
    """
    folder, identity = workplace.runs / RUN_ID, workplace.root / "hostile-identity"
    shutil.rmtree(identity, ignore_errors=True)
    identity.mkdir(parents=True)
    tokens = _write_tokens(identity)
    orders = identity / "orders"
    blocks: list[Block] = []
    best_return = 0.0
    with ExitStack() as parts:
        learner, address = parts.enter_context(_serving(workplace, folder, identity))
        for number in range(ACTORS):
            command = (sys.executable, "-m", "actor_client", "gym", "--env", ENV, "--num-envs", "4")
            options = ("--learner", address, "--name", f"honest-{number}", "--token-file", identity / "honest.token")
            log = workplace.log(f"hostile-actor-{number}")
            parts.enter_context(Child(f"actor {number}", (*command, *options), log))
        # It shares this machine's cores with the learner, which a client elsewhere does not.
        client = ("nice", "-n", "10", sys.executable, "-m", "tests.tools.bench.hostile_client")
        hostile = parts.enter_context(
            Child(
                "the hostile client",
                (*client, address, identity / "hostile.token", orders),
                workplace.log("hostile-client"),
            )
        )
        hostile.wait_until(lambda: "ready" in hostile.log(), "it was ready", START_SECONDS)
        found = read_addresses(folder)
        if found is None:
            raise MeasurementFailed("the learner's addresses are gone")
        operator = Operator.of(found)
        learner.wait_until(
            lambda: len(operator.status().run.behaviors) > 0, "an actor declared CartPole", START_SECONDS
        )
        probe = parts.enter_context(Probe(address, tokens["honest"]))
        for number in range(2 * pairs):
            # hostile, quiet; quiet, hostile; ...: training begins under attack
            is_hostile = (number % 2 == 0) == (number // 2 % 2 == 0)
            if is_hostile:
                _order(orders, f"{number} attack {block_seconds}")
            began, memory = time.monotonic(), []
            while time.monotonic() < began + block_seconds:
                time.sleep(1.0)
                if not learner.is_running():
                    raise learner.failed("ended during the bench")
                memory.append(sum(map(rss_bytes, (learner.pid, *learner.children()))))
                best_return = max(best_return, *(row.best_return or 0.0 for row in state_of(operator).behaviors))
            block = Block(is_hostile, probe.acks(began + SETTLING_SECONDS), memory)
            blocks.append(block)
            tell(f"block {number + 1} of {2 * pairs}, {_told(block)}; best return {best_return:.0f}")
        _order(orders, f"{2 * pairs} end")
        hostile.wait_for_success(START_SECONDS)
        answers = json.loads(hostile.log().splitlines()[-1])
    return document(blocks, best_return, answers)


def document(blocks: Sequence[Block], best_return: float, answers: Mapping[str, int]) -> dict[str, Any]:
    """Returns all figures, and whether each requirement is met."""
    quiet = [seconds for block in blocks if not block.is_hostile for seconds in block.acks]
    hostile = [seconds for block in blocks if block.is_hostile for seconds in block.acks]
    if len(quiet) < 2 or len(hostile) < 2:
        raise MeasurementFailed("too few acks were measured: blocks must be longer")
    memory = max(size for block in blocks if block.is_hostile for size in block.memory) - statistics.median(
        size for block in blocks if not block.is_hostile for size in block.memory
    )
    medians = statistics.median(quiet), statistics.median(hostile)
    tails = p99(quiet), p99(hostile)
    most_p99 = max(MAX_P99_RATIO * tails[0], LEAST_P99_SECONDS)
    longest, mib = max(hostile), memory / 2**20
    most_median = MAX_MEDIAN_RATIO * medians[0]
    checks = [
        ("median ack", f"at most {_ms(most_median)}", _ms(medians[1]), medians[1] <= most_median),
        ("99 % of acks within", f"at most {_ms(most_p99)}", _ms(tails[1]), tails[1] <= most_p99),
        ("longest ack", f"at most {_ms(MAX_ACK_SECONDS)}", _ms(longest), longest <= MAX_ACK_SECONDS),
        ("memory above quiet", "under 200 MiB", f"{mib:.0f} MiB", memory < MAX_MEMORY_BYTES),
        ("CartPole", f"reaches {TARGET_RETURN:.0f}", f"{best_return:.0f}", best_return >= TARGET_RETURN),
    ]
    return {
        "quiet_seconds": {"median": medians[0], "p99": tails[0], "max": max(quiet), "acks": len(quiet)},
        "hostile_seconds": {"median": medians[1], "p99": tails[1], "max": max(hostile), "acks": len(hostile)},
        "memory_above_quiet_bytes": memory,
        "best_return": best_return,
        "attacks": dict(answers),
        "checks": [dict(zip(("name", "asked", "seen", "is_met"), check, strict=True)) for check in checks],
    }


def render(found: Mapping[str, Any]) -> str:
    """Returns the figures as a table in Markdown."""
    lines = ["| ack of an honest client | median | 99 % within | longest |", "|---|---|---|---|"]
    for name, key in (("quiet", "quiet_seconds"), ("under attack", "hostile_seconds")):
        row = found[key]
        lines.append(f"| {name} | {_ms(row['median'])} | {_ms(row['p99'])} | {_ms(row['max'])} |")
    lines += ["", "| requirement | asked | seen | |", "|---|---|---|---|"]
    lines += [
        f"| {check['name']} | {check['asked']} | {check['seen']} | {'met' if check['is_met'] else 'NOT MET'} |"
        for check in found["checks"]
    ]
    return "\n".join(lines)


def is_met(found: Mapping[str, Any]) -> bool:
    """Returns whether every requirement is met."""
    return all(check["is_met"] for check in found["checks"])


def p99(seconds: Sequence[float]) -> float:
    """Returns the time within which 99 of 100 acks came."""
    return sorted(seconds)[max(0, -(-99 * len(seconds) // 100) - 1)]


def _serving(workplace: Workplace, folder: Path, identity: Path) -> AbstractContextManager[tuple[Child, str]]:
    """Runs the learner and yields it with its address."""
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    tokens = ("--token-file", str(identity / "tokens"))
    command = [sys.executable, "-m", "learner", "serve", str(RUN_FILE), *tokens, *settings]
    return serving(command, folder, workplace.log("hostile-learner"))


def _write_tokens(folder: Path) -> dict[str, str]:
    """Writes the token file of the learner and a file for each principal; returns the tokens."""
    tokens = {name: make_token() for name in ("honest", "hostile")}
    rows = [TokenRow(Principal(name, Role.ACTOR), token_hash(token)) for name, token in tokens.items()]
    (folder / "tokens").write_text("".join(f"{row.line()}\n" for row in rows), encoding="utf-8")
    for name, token in tokens.items():
        (folder / f"{name}.token").write_text(token + "\n", encoding="utf-8")
    return tokens


def _order(orders: Path, order: str) -> None:
    """Replaces the order of the hostile client."""
    new = orders.with_suffix(".new")
    new.write_text(order, encoding="utf-8")
    new.replace(orders)


def _told(block: Block) -> str:
    kind = "hostile" if block.is_hostile else "quiet"
    return (
        f"{kind}: median {_ms(statistics.median(block.acks))}, p99 {_ms(p99(block.acks))}, longest {_ms(max(block.acks))}, "
        f"{max(block.memory) / 2**20:.0f} MiB"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
