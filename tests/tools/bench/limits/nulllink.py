"""A link without a network and with unlimited credit, to measure the rollout alone."""

import time

from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk

from actor_client.connection.books import Books
from actor_client.policy.actions import ActingPolicy, PolicyUnusable
from actor_client.rollout.assignment import Pinned
from actor_client.rollout.link import ChunkLimits

CLOCK_EVERY_CHECKS = 64
"""A look at the clock costs as much as one of these checks."""


class NullBehavior:
    """A declared behavior that accepts everything; see `actor_client.rollout.link.BehaviorLink`.

    Attributes:
        rows: How many steps were sent.
        chunks: In how many chunks.
    """

    behavior = "Null"
    behavior_index = 0
    time_horizon = 64
    max_policy_lag = 4
    cut_at_swap = False
    memory_stride = 0
    team = 0
    session_lost = False
    awaits_assignment = False
    limits = ChunkLimits(
        target_chunk_bytes=256 * 1024, max_chunk_bytes=4 << 20, max_chunk_age_seconds=0.025, max_chunk_steps=0
    )

    def __init__(self) -> None:
        self.books = Books()
        self.rows = 0
        self.chunks = 0
        self._policy: ActingPolicy | None = None

    def begin_session(self) -> None:
        """Does nothing, because the session is never lost."""

    def publish(self, policy: ActingPolicy) -> None:
        """Makes a policy available to the rollout."""
        self._policy = policy

    def take_policy(self) -> ActingPolicy | None:
        """Returns a new policy once."""
        policy, self._policy = self._policy, None
        return policy

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Ends the measurement: its policies act."""
        raise why

    def may_step(self, steps: int) -> bool:
        """Returns True."""
        del steps
        return True

    def may_act(self, policy: ActingPolicy) -> bool:
        """Returns True."""
        del policy
        return True

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Returns None."""
        del generation, version
        return None

    def opponent(self, pinned: Pinned) -> ActingPolicy | None:
        """Returns None."""
        del pinned
        return None

    @property
    def has_used_quota(self) -> bool:
        """Never."""
        return False

    @property
    def missing(self) -> str:
        """Returns what it would be said to lack."""
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
        """Returns whether the time is over; looks at the clock now and then."""
        self._checks += 1
        if self._checks % CLOCK_EVERY_CHECKS == 0:
            self._is_over = time.monotonic() >= self._deadline
        return self._is_over

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> NullBehavior:
        """Returns the one behavior."""
        del spec, team, agents, timeout_seconds
        return self.behavior

    def wait(self, timeout_seconds: float) -> None:
        """Returns immediately."""
        del timeout_seconds
