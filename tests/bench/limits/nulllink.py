"""A connection to nowhere with unlimited credit: what the rollout costs without a network."""

import time

from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk

from actor_client.connection.books import Books
from actor_client.policy.actions import ActingPolicy, PolicyUnusable
from actor_client.rollout.link import ChunkLimits

CLOCK_EVERY_CHECKS = 64
"""A look at the clock costs as much as one of these checks."""


class NullBehavior:
    """A declared behavior that takes everything; see `actor_client.rollout.link.BehaviorLink`.

    Attributes:
        rows: how many steps were sent.
        chunks: in how many chunks.
    """

    behavior = "Null"
    behavior_index = 0
    time_horizon = 64
    max_policy_lag = 4
    cut_at_swap = False
    memory_stride = 0
    team = 0
    session_lost = False
    limits = ChunkLimits(
        target_chunk_bytes=256 * 1024, max_chunk_bytes=4 << 20, max_chunk_age_seconds=0.025, max_chunk_steps=0
    )

    def __init__(self) -> None:
        self.books = Books()
        self.rows = 0
        self.chunks = 0
        self._policy: ActingPolicy | None = None

    def begin_session(self) -> None:
        """Never called: the session is never lost."""

    def publish(self, policy: ActingPolicy) -> None:
        """Puts a policy where the rollout finds it."""
        self._policy = policy

    def take_policy(self) -> ActingPolicy | None:
        """Returns a new policy once."""
        policy, self._policy = self._policy, None
        return policy

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Ends the measurement: its policies act."""
        raise why

    def may_step(self, steps: int) -> bool:
        """Always."""
        del steps
        return True

    def may_act(self, policy: ActingPolicy) -> bool:
        """Always."""
        del policy
        return True

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Never asked for."""
        del generation, version
        return None

    @property
    def missing(self) -> str:
        """What it would be said to lack."""
        return "credit"

    def send(self, chunk: Chunk) -> None:
        """Counts a chunk and forgets it."""
        self.rows += chunk.rows
        self.chunks += 1
        self.books.acked(chunk.rows)


class NullLink:
    """A session that stops after a while; see `actor_client.rollout.link.Link`.

    Args:
        seconds: After how long.
    """

    run_seed = 1
    actor_index = 0
    error = None
    assignment = None

    def __init__(self, seconds: float) -> None:
        self.behavior = NullBehavior()
        self._deadline = time.monotonic() + seconds
        self._checks = 0
        self._is_over = False

    @property
    def stopping(self) -> bool:
        """Whether the time is over; looks at the clock now and then."""
        self._checks += 1
        if self._checks % CLOCK_EVERY_CHECKS == 0:
            self._is_over = time.monotonic() >= self._deadline
        return self._is_over

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> NullBehavior:
        """Returns the one behavior."""
        del spec, team, agents, timeout_seconds
        return self.behavior

    def wait(self, timeout_seconds: float) -> None:
        """Never waits: nothing is ever out."""
        del timeout_seconds
