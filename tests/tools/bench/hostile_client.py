"""A client with a valid token that does what reviewed faults allowed (R1 to R12, and later ones by name), one after another.

`python -m tests.tools.bench.hostile_client ADDRESS TOKEN_FILE ORDERS` prepares its messages, writes `ready`, and then follows the file
ORDERS: `N attack SECONDS` attacks once for that time, for each new N; `N end` prints, as one JSON object, how often each attack
was carried out and how it was answered. Where the learner shuts it out, it continues under another name. R5 is a fault of the
learner's own restart and no attack.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from rollcast.enums import ColumnRole, SegmentEnd
from rollcast.errors import WireError
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import policy_pb2, session_pb2, trajectory_pb2

from actor_client.envs.spaces import ROOT_NAME
from tests.learner.service.calls.harness import Actor
from tests.learner.service.calls.samples import make_chunk
from tests.tools.bench.sessions.actor import with_observation

BEHAVIOR: Final = "CartPole"
OBSERVATION: Final = f"obs/{ROOT_NAME}"
MANY: Final = 1_000_000
MAX_HELD: Final = 50_000
CALL_SECONDS: Final = 5.0
SOCKETS: Final = 200
ROWS: Final = 10
REFUSED: Final = (grpc.RpcError, WireError, OSError, EOFError, TimeoutError, asyncio.CancelledError)


def cartpole() -> BehaviorSpec:
    """Returns the spec of CartPole-v1 as the actor declares it."""
    return BehaviorSpec(
        BEHAVIOR, (ObservationSpec(ROOT_NAME, np.dtype(np.float32), (4,)),), ActionSpec(discrete_branches=(2,))
    )


def steps(sequence: int, generation: int, value: float) -> Chunk:
    """Returns a chunk of one segment whose observations all have one value."""
    rows, final = (np.full((count, 4), value, np.float32) for count in (ROWS, 1))
    return with_observation(make_chunk(ROWS, sequence=sequence, generation=generation), ROOT_NAME, rows, final)


def episodes(sequence: int, generation: int, count: int) -> Chunk:
    """Returns a chunk of invented returns without rows."""
    columns: dict[str, Any] = {
        "episode/return": np.full(count, 1e6, np.float32),
        "episode/length": np.ones(count, np.uint32),
        "episode/env": np.zeros(count, np.uint32),
        "episode/agent": np.zeros(count, np.uint64),
        "episode/episode": np.arange(count, dtype=np.uint64),
        "episode/end": np.full(count, SegmentEnd.TERMINATED, np.uint8),
    }
    roles = dict.fromkeys(columns, ColumnRole.EPISODE)
    return Chunk(sequence=sequence, generation=generation, episodes=count, agents=1, columns=columns, roles=roles)


class Hostile:
    """Attacks a learner.

    Args:
        address: The learner's address for actors.
        token: A valid token of an actor.
    """

    def __init__(self, address: str, token: str) -> None:
        self._port = int(address.rpartition(":")[2])
        self._token = token
        self._names = itertools.count(1)
        self._name = "hostile-0"
        self.answers: Counter[str] = Counter()
        books = [session_pb2.ActorBooks()] * MANY
        self._large_opening = session_pb2.OpenSessionRequest(
            protocol_revision=1,
            actor_name="hostile",
            instance_id=str(uuid.uuid4()),
            resume=session_pb2.ResumeSession(books=books),
        )
        self._held = [policy_pb2.HeldPolicy(behavior_index=index) for index in range(MAX_HELD)]
        self._empty_columns = trajectory_pb2.Chunk(sequence=1, columns=[trajectory_pb2.Column()] * MANY)
        self._packed = encode_chunk(_packed(), compress=frozenset([OBSERVATION]))
        self.attacks: dict[str, Callable[[], Awaitable[None]]] = {
            "R1": self.large_requests,
            "R2": self.connections,
            "R3": self.silent_sockets,
            "R4": self.close_with_stream,
            "R6": self.forged_books,
            "R7": self.invented_returns,
            "R8": self.extreme_values,
            "R9": self.held_policies,
            "R10": self.unread_policies,
            "R11": self.reasons,
            "R12": self.packed_chunks,
            "claims": self.claimed_agents,
            "renewals": self.expensive_renewals,
        }

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Actor]:
        """Opens a channel of its own; takes another name if a session of it is shut out."""
        async with Actor(self._port, self._name, token=self._token) as actor:
            try:
                yield actor
            except WireError as error:
                if error.reason == "QUARANTINED":
                    self._name = f"hostile-{next(self._names)}"
                raise

    async def large_requests(self) -> None:
        """Sends 2 MiB of empty books, and a chunk of a million empty columns."""
        async with self.client() as actor:
            with suppress(WireError):
                await actor.call(actor.sessions.OpenSession, self._large_opening)
            await actor.open()
            upload = await actor.upload()
            await upload.until("opened")
            await upload.send_message(self._empty_columns)
            await upload.read()

    async def connections(self) -> None:
        """Opens many channels, each with a session."""
        for _ in range(16):
            async with self.client() as actor:
                await actor.open(instance_id=str(uuid.uuid4()))

    async def silent_sockets(self) -> None:
        """Opens many connections that say nothing, for half a second."""
        writers = []
        try:
            for _ in range(SOCKETS):
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writers.append(writer)
            await asyncio.sleep(0.5)
        finally:
            for writer in writers:
                writer.close()

    async def close_with_stream(self) -> None:
        """Closes a session whose upload is open."""
        async with self.client() as actor:
            await actor.join(spec=cartpole())
            await actor.close()

    async def forged_books(self) -> None:
        """Claims very many steps of invented sessions."""
        books = [session_pb2.ActorBooks(produced_steps=2**32, acked_steps=2**32)]
        async with self.client() as actor:
            for _ in range(16):
                resume = session_pb2.ResumeSession(session_id=str(uuid.uuid4()), epoch=1, generation=0, books=books)
                await actor.open(resume=resume, instance_id=str(uuid.uuid4()))

    async def invented_returns(self) -> None:
        """Reports 100 returns of a million without rows."""
        async with self.client() as actor:
            generation = (await actor.open()).generation
            await actor.declare(cartpole())
            upload = await actor.upload()
            await upload.until("opened")
            await upload.send(episodes(1, generation, 100))
            await upload.read()

    async def extreme_values(self) -> None:
        """Sends rows of 9e14."""
        async with self.client() as actor:
            generation = (await actor.open()).generation
            await actor.declare(cartpole())
            upload = await actor.upload()
            await upload.until("opened")
            for sequence in (1, 2):
                await upload.send(steps(sequence, generation, 9e14))
                await upload.read()

    async def held_policies(self) -> None:
        """Subscribes with very many policies that it claims to hold."""
        async with self.client() as actor:
            await actor.open()
            async with asyncio.timeout(CALL_SECONDS):
                await actor.subscribe(*self._held).read()

    async def unread_policies(self) -> None:
        """Fetches a policy 200 times and reads nothing."""
        async with self.client() as actor:
            session = await actor.open()
            request = policy_pb2.GetPolicyRequest(session_id=session.session_id, behavior=BEHAVIOR)
            calls = [actor.policies.GetPolicy(request) for _ in range(200)]
            await asyncio.sleep(0.5)
            for call in calls:
                call.cancel()

    async def reasons(self) -> None:
        """Opens and closes sessions with reasons that it invents."""
        async with self.client() as actor:
            for _ in range(16):
                await actor.open(instance_id=str(uuid.uuid4()))
                await actor.declare(cartpole())
                counts = [session_pb2.ReasonCount(reason=f"r{uuid.uuid4().hex}", steps=1) for _ in range(64)]
                await actor.close(books=[session_pb2.ActorBooks(behavior_index=0, discarded=counts, produced_steps=64)])

    async def packed_chunks(self) -> None:
        """Sends small chunks that unpack to very much, of an old generation and of this one."""
        async with self.client() as actor:
            generation = (await actor.open()).generation
            await actor.declare(cartpole())
            upload = await actor.upload()
            await upload.until("opened")
            for sequence in range(1, 101):
                self._packed.sequence = sequence
                self._packed.generation = generation if sequence > 50 else max(1, generation) - 1
                await upload.send_message(self._packed)
            await upload.finish()

    async def claimed_agents(self) -> None:
        """Sends steps of a million claimed agents as fast as the learner reads them, until it is stopped."""
        async with self.client() as actor:
            generation = (await actor.open()).generation
            await actor.declare(cartpole(), agents=64)
            upload = await actor.upload()
            await upload.until("opened")
            for sequence in itertools.count(1):
                await upload.send_message(encode_chunk(replace(steps(sequence, generation, 0.1), agents=2**20)))

    async def expensive_renewals(self) -> None:
        """Renews over four connections with 20 kB of errors of policies each time, until one is refused."""
        report = session_pb2.PolicyReport(behavior_index=0, error="x" * 100)

        async def renew() -> None:
            async with self.client() as actor:
                await actor.open(instance_id=str(uuid.uuid4()))
                await actor.declare(cartpole())
                while True:
                    await actor.renew(policies=[report] * 150)

        tasks = [asyncio.create_task(renew()) for _ in range(4)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self, seconds: float) -> None:
        """Does one attack after another, each for an equal part of the time, again and again within it."""
        each_seconds = seconds / len(self.attacks)
        for name, attack in self.attacks.items():
            until = time.monotonic() + each_seconds
            while (left := until - time.monotonic()) > 0:
                answer = "ok"
                try:
                    async with asyncio.timeout(left):
                        await attack()
                except WireError as error:
                    answer = error.reason or error.code.name
                except REFUSED as error:
                    answer = type(error).__name__
                self.answers[f"{name} {answer}"] += 1


def _packed() -> Chunk:
    """Returns a chunk whose observations, all zeros, take 32 MiB and almost nothing on the wire."""
    rows = 2**21
    columns = {OBSERVATION: np.zeros((rows, 4), np.float32), "length": np.array([rows], np.uint32)}
    return Chunk(
        sequence=1,
        segments=1,
        rows=rows,
        agents=1,
        columns=columns,
        roles={OBSERVATION: ColumnRole.STEP, "length": ColumnRole.SEGMENT},
    )


def _order(orders: Path) -> list[str]:
    """Returns the words of the newest order."""
    return orders.read_text(encoding="utf-8").split() if orders.exists() else []


async def follow(hostile: Hostile, orders: Path) -> None:
    """Carries out the orders until the end."""
    last = ""
    while True:
        match _order(orders):
            case [_, "end"]:
                return
            case [number, "attack", seconds] if number != last:
                last = number
                await hostile.run(float(seconds))
            case _:
                await asyncio.sleep(0.05)


def main() -> int:
    """Attacks as ordered."""
    address, token_file, orders = sys.argv[1:]
    hostile = Hostile(address, Path(token_file).read_text(encoding="utf-8").strip())
    sys.stdout.write("ready\n")
    asyncio.run(follow(hostile, Path(orders)))
    sys.stdout.write(json.dumps(hostile.answers, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
