"""A link that keeps what it is sent, a policy that follows a rule, and a decoder of chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import decode_chunk, encode_chunk, find_data_fault
from rollcast.v1 import policy_pb2

from actor_client.connection.books import Books
from actor_client.policy.actions import NO_MEMORY, ActingPolicy, Actions, MemoryForm, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.rollout.assignment import Pinned
from actor_client.rollout.link import BehaviorLink, ChunkLimits


def limits(*, target: int = 1 << 18, largest: int = 1 << 22, age: float = 1e9, steps: int = 0) -> ChunkLimits:
    """Returns limits that never trigger."""
    return ChunkLimits(
        target_chunk_bytes=target, max_chunk_bytes=largest, max_chunk_age_seconds=age, max_chunk_steps=steps
    )


@dataclass
class KeepingLink:
    """Keeps every chunk, after it went through the contract's encoding and all of its checks."""

    spec: BehaviorSpec
    time_horizon: int = 8
    max_policy_lag: int = 0
    cut_at_swap: bool = False
    limits: ChunkLimits = field(default_factory=limits)
    memory: MemoryForm = NO_MEMORY
    behavior_index: int = 2
    team: int = 1
    books: Books = field(default_factory=Books)
    session_lost: bool = False
    sessions: int = 1
    chunks: list[Chunk] = field(default_factory=list)
    policies: list[ActingPolicy] = field(default_factory=list)
    allowed: Callable[[], bool] = lambda: True
    acts: Callable[[], bool] = lambda: True
    held: dict[int, ActingPolicy] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    instead: ActingPolicy | None = None
    quota_through: int | None = None
    awaits_assignment: bool = False
    is_paused: bool = False
    opponents: dict[Pinned, ActingPolicy] = field(default_factory=dict)

    def opponent(self, pinned: Pinned) -> ActingPolicy | None:
        """Returns what the test has."""
        return self.opponents.get(pinned)

    @property
    def behavior(self) -> str:
        """The declared name."""
        return self.spec.name

    def may_act(self, policy: ActingPolicy) -> bool:
        """Returns what the test says."""
        return self.acts()

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Returns what the test holds."""
        return self.held.get(version)

    def begin_session(self) -> None:
        """Starts a new session with empty books."""
        self.session_lost = False
        self.sessions += 1
        self.books = Books()

    def take_policy(self) -> ActingPolicy | None:
        """Returns the newest policy that was not taken."""
        if not self.policies:
            return None
        newest = self.policies[-1]
        self.policies.clear()
        return newest

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Refuses a policy as the test says."""
        self.refused.append(str(why))
        return self.instead

    def may_step(self, steps: int) -> bool:
        """Returns what the test says."""
        return self.allowed() and not self.has_used_quota

    @property
    def has_used_quota(self) -> bool:
        """Returns whether the steps so far are all that the test asks for."""
        return self.quota_through is not None and self.books.view().produced >= self.quota_through

    @property
    def missing(self) -> str:
        """Returns what it would be said to lack."""
        return "credit"

    def send(self, chunk: Chunk) -> None:
        """Checks the form and the numbers, and keeps what arrives on the other side."""
        chunk.sequence = len(self.chunks) + 1
        message = encode_chunk(chunk)
        if message.ByteSize() > self.limits.max_chunk_bytes:
            raise AssertionError(f"{message.ByteSize()} bytes; {self.limits.max_chunk_bytes} are allowed")
        if self.limits.max_chunk_steps and chunk.rows > self.limits.max_chunk_steps:
            raise AssertionError(f"{chunk.rows} rows; {self.limits.max_chunk_steps} are allowed")
        form = self.memory
        arrived = decode_chunk(message, self.spec, max_bytes=1 << 26, memory_size=form.size, memory_stride=form.stride)
        fault = find_data_fault(arrived, self.spec)
        if fault is not None:
            raise AssertionError(fault)
        self.chunks.append(arrived)


@dataclass
class KeepingSession:
    """A session of one actor; `wait` calls a function of the test."""

    run_seed: int = 1
    actor_index: int = 0
    stopping: bool = False
    error: Exception | None = None
    waits: int = 0
    on_wait: Callable[[], None] = lambda: None
    assignment: policy_pb2.Assignment | None = None

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> BehaviorLink:
        """Returns a new link."""
        return KeepingLink(spec, team=team)

    def wait(self, timeout_seconds: float) -> None:
        """Calls the test's function instead of waiting."""
        self.waits += 1
        self.on_wait()


@dataclass
class RulePolicy:
    """Chooses by a rule from the observations; its log-probabilities are its negative version.

    With a memory, all numbers of it count the steps since it was zeros.
    """

    spec: BehaviorSpec
    version: int = 0
    generation: int = 1
    rule: Callable[[Sequence[NDArray[Any]]], NDArray[Any]] | None = None
    acted: int = 0
    modes: int = 0
    draws: int = 0
    memory: MemoryForm = NO_MEMORY

    def greedy(self) -> RulePolicy:
        """Counts that it was asked for."""
        self.modes += 1
        return self

    def uniform(self) -> RulePolicy:
        """Counts that it was asked for."""
        self.draws += 1
        return self

    def act(
        self,
        observations: Sequence[NDArray[Any]],
        masks: NDArray[np.uint8] | None,
        noise: Noise,
        memory: NDArray[np.float32] | None = None,
    ) -> Actions:
        """Applies the rule, or returns 0 without one."""
        self.acted += 1
        agents, action = len(observations[0]), self.spec.action
        continuous = np.zeros((agents, action.continuous_size), np.float32) if action.continuous_size else None
        discrete = None
        if action.discrete_branches:
            discrete = np.zeros((agents, len(action.discrete_branches)), np.int32)
            if masks is not None:
                begins = np.cumsum((0, *action.discrete_branches))
                for branch, (begin, end) in enumerate(itertools.pairwise(begins.tolist())):
                    discrete[:, branch] = masks[:, begin:end].argmax(axis=1)
            elif self.rule is not None:
                discrete[:, 0] = self.rule(observations)
        log_prob = np.full((agents, action.factors), -float(self.version), np.float32)
        actions = Actions(continuous, discrete, log_prob, continuous)
        if not self.memory.size:
            return actions
        before = np.zeros((agents, self.memory.size), np.float32) if memory is None else memory
        return actions._replace(memory_in=before, memory_out=before + 1)


@dataclass(frozen=True)
class Piece:
    """One segment, decoded from a chunk."""

    env: int
    episode: int
    first_step: int
    end: SegmentEnd
    versions: tuple[int, ...]
    rows: dict[str, NDArray[Any]]
    final: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.versions)


def remembered(chunk: Chunk, stride: int) -> list[list[float]]:
    """Returns the first number of each memory, segment by segment."""
    numbers = iter(chunk.columns["memory"][:, 0].tolist())
    return [[next(numbers) for _ in range(0, length, stride)] for length in chunk.columns["length"].tolist()]


def pieces(chunks: Sequence[Chunk]) -> list[Piece]:
    """Returns all segments of the chunks, in order."""
    found = []
    for chunk in chunks:
        begin = 0
        columns = chunk.columns
        for index in range(chunk.segments):
            end = begin + int(columns["length"][index])
            offsets = columns.get("version_offset", np.zeros(chunk.rows, np.uint32))[begin:end]
            step = {name: columns[name][begin:end] for name, role in chunk.roles.items() if role.name == "STEP"}
            step.pop("version_offset", None)
            found.append(
                Piece(
                    env=int(columns["env"][index]),
                    episode=int(columns["episode"][index]),
                    first_step=int(columns["first_step"][index]),
                    end=SegmentEnd(int(columns["end"][index])),
                    versions=tuple(chunk.base_version + int(offset) for offset in offsets),
                    rows=step,
                    final={name: columns[name][index] for name, role in chunk.roles.items() if role.name == "FINAL"},
                )
            )
            begin = end
    return found
