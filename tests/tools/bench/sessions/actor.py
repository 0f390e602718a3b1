"""Runs one actor's connection without an environment: rows are made in advance, and a policy is only a number."""

from __future__ import annotations

import asyncio
import math
import random
import time
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ColumnRole
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.tls import ClientSecurity
from rollcast.trajectories import Chunk

from actor_client.connection.connector import Connector
from actor_client.connection.declarations import Declaration, Declarations
from actor_client.connection.session import Session
from actor_client.connection.state import ConnectionState
from actor_client.exits import ActorError
from tests.actor_client.rollout.harness import RulePolicy
from tests.learner.service.calls.samples import make_chunk

LOOK_SECONDS: Final = 0.05
"""Interval at which an actor that may not step looks again."""
MAX_UNACKED_CHUNKS: Final = 16
"""Chunks on their way at which an actor that sends as fast as it may waits for an ack."""
FLUSH_SECONDS: Final = 2.0


def load(description: PolicyDescription, payload: bytes, spec: BehaviorSpec) -> RulePolicy:
    """Returns a policy that is only a generation and a version, without reading its payload."""
    del payload
    return RulePolicy(spec, description.version, description.generation)


def with_observation(chunk: Chunk, name: str, rows: NDArray[Any], final: NDArray[Any]) -> Chunk:
    """Returns a chunk of `make_chunk` with another observation."""
    columns = {key: column for key, column in chunk.columns.items() if not key.endswith("/state")}
    roles = {key: role for key, role in chunk.roles.items() if key in columns}
    columns |= {f"obs/{name}": rows, f"final_obs/{name}": final}
    roles |= {f"obs/{name}": ColumnRole.STEP, f"final_obs/{name}": ColumnRole.FINAL}
    return replace(chunk, columns=columns, roles=roles)


def make_rows(spec: BehaviorSpec, rows: int, seed: int) -> Chunk:
    """Returns a chunk of one segment with random observations and actions of a uniform policy.

    Args:
        spec: A behavior with one observation and one discrete branch.
        rows: Number of steps.
        seed: Seed of the values.
    """
    generator = np.random.default_rng(seed)
    observation, branch = spec.observations[0], spec.action.discrete_branches[0]

    def observed(count: int) -> NDArray[Any]:
        shape = (count, *observation.shape)
        if observation.dtype == np.uint8:
            return generator.integers(0, 256, shape, np.uint8)
        return generator.standard_normal(shape).astype(observation.dtype)

    chunk = with_observation(make_chunk(rows), observation.name, observed(rows), observed(1))
    chunk.columns["discrete_action"] = generator.integers(0, branch, (rows, 1), np.int32)
    chunk.columns["log_prob"] = np.full((rows, 1), -np.log(branch), np.float32)
    return chunk


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an actor sends.

    Attributes:
        spec: Its behavior.
        rows: Steps that each chunk repeats.
        period_seconds: Time from one chunk to the next; 0 sends as fast as credit allows.
    """

    spec: BehaviorSpec
    rows: Chunk
    period_seconds: float


class Latencies:
    """Collects seconds; stands in for the histogram of round trips of an actor."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def add(self, value: float) -> None:
        """Adds a value."""
        self.seconds.append(value)


class BareActor:
    """One actor with the connection of `rollcast act`: two channels, window, credit, lease, resumption.

    Args:
        address: Address of the learner.
        name: Name of the actor.
        traffic: What it sends.
        acks: Receives the seconds from each chunk to its ack.
        workers: Threads that verify policies.
        security: How to connect.

    Use it in a running event loop.
    """

    def __init__(
        self,
        address: str,
        name: str,
        traffic: Traffic,
        *,
        acks: Latencies,
        workers: Executor,
        security: ClientSecurity,
    ) -> None:
        self._rows = traffic.rows
        self._period_seconds = traffic.period_seconds
        self._state = ConnectionState(address, Session(name, "bench"))
        self._state.counts.round_trip_seconds = acks  # type: ignore[assignment]  # it has `add`, which is all that is called
        self._declaration = Declaration(traffic.spec, 0, 1)
        self._declarations = Declarations(self._state)
        self._declarations.add(self._declaration)
        self._connector = Connector(
            self._state,
            self._declarations,
            load,
            workers,
            FLUSH_SECONDS,
            advice={},
            quiet_seconds=0.0,
            security=security,
        )
        self._first_session = ""
        self.error = ""

    @property
    def is_present(self) -> bool:
        """Whether the upload is open and its behavior acts with a policy of the present generation."""
        return self._state.uploading and self._declaration.port is not None

    @property
    def generation(self) -> int:
        """Start of the learner to which the open upload belongs; 0 without one."""
        return self._state.session.generation if self.is_present else 0

    @property
    def has_lost_session(self) -> bool:
        """Whether the actor ended, or the learner no longer knew its session."""
        return bool(self.error) or self._state.session.session_id != self._first_session

    @property
    def version(self) -> int:
        """The acting version of the policy; 0 before the first."""
        port = self._declaration.port
        return 0 if port is None else port.acting[1]

    @property
    def acked_steps(self) -> int:
        """Steps that the learner has acked."""
        port = self._declaration.port
        return 0 if port is None else port.total().acked

    def note_session(self) -> None:
        """Remembers the present session, with which `has_lost_session` compares."""
        self._first_session = self._state.session.session_id

    async def run(self) -> None:
        """Connects and sends until cancelled."""
        stepping = asyncio.create_task(self._step())
        try:
            await self._connector.run()
        except ActorError as error:
            self.error = error.message
        finally:
            stepping.cancel()
            await asyncio.gather(stepping, return_exceptions=True)

    async def _step(self) -> None:
        period_seconds = self._period_seconds
        due = time.monotonic() + random.random() * period_seconds
        while True:
            if period_seconds > 0:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            while not self._try_to_send():  # noqa: ASYNC110 - credit, holds and policies have no common event
                await asyncio.sleep(LOOK_SECONDS if period_seconds > 0 else 0.001)
            if period_seconds > 0:
                due += period_seconds * max(1, math.ceil((time.monotonic() - due) / period_seconds))
            else:
                await asyncio.sleep(0)

    def _try_to_send(self) -> bool:
        """Records the steps of a chunk and sends it, if the learner allows so many."""
        port = self._declaration.port
        if port is None:
            return False
        if port.session_lost:
            port.begin_session()
        port.take_policy()
        if self._state.window.chunks >= MAX_UNACKED_CHUNKS or not port.may_step(self._rows.rows):
            return False
        chunk = replace(self._rows)
        chunk.generation, chunk.base_version = port.acting
        port.books.produced(chunk.rows)
        port.books.seal(chunk.rows)
        port.send(chunk)
        return True
