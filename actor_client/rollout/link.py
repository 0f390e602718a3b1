"""The interfaces of the connection to the rollout, called from the stepping thread only.

`actor_client.connection` implements them. Everything here is cheap, except `declare` and `wait`, which block: a call of
any other method never waits for the network.
"""

from dataclasses import dataclass
from typing import Protocol

from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from rollcast.v1 import policy_pb2

from actor_client.counts import RolloutCounts
from actor_client.policy.actions import ActingPolicy, PolicyUnusable
from actor_client.rollout.assignment import Pinned


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Sizes and ages at which chunks are sent; from the learner's answer at opening.

    Attributes:
        target_chunk_bytes: A chunk is sent once its rows hold this many bytes.
        max_chunk_bytes: Most bytes of columns in a chunk.
        max_chunk_age_seconds: Longest time that a closed segment waits before it is sent.
        max_chunk_steps: Most rows of a chunk, which is sent when it has as many; 0 = no limit.
    """

    target_chunk_bytes: int
    max_chunk_bytes: int
    max_chunk_age_seconds: float
    max_chunk_steps: int


class StepBooks(Protocol):
    """The books of one behavior in one session: produced = open + spooled + discarded + dropped + unacked + acked."""

    def produced(self, steps: int) -> None:
        """Counts recorded steps; they are open."""

    def discard(self, reason: str, steps: int) -> None:
        """Counts open steps that will never be sent."""

    def ghost(self, steps: int) -> None:
        """Counts steps of opponents, which are outside the equation."""

    def seal(self, steps: int) -> None:
        """Counts open steps that entered a chunk; they are then unacked. Called just before `BehaviorLink.send`."""


class BehaviorLink(Protocol):
    """One declared behavior."""

    @property
    def behavior(self) -> str:
        """The behavior's name, without a team."""

    @property
    def behavior_index(self) -> int:
        """The learner's number of the behavior."""

    @property
    def time_horizon(self) -> int:
        """Most steps of a segment."""

    @property
    def max_policy_lag(self) -> int:
        """A segment is cut before its oldest row lags further than this behind the acting version; 0 = no limit."""

    @property
    def cut_at_swap(self) -> bool:
        """True if open segments end when the policy is replaced (strict on-policy runs)."""

    @property
    def awaits_assignment(self) -> bool:
        """True if the behavior has self-play: a behavior id acts only once an assignment gives it a task."""

    @property
    def team(self) -> int:
        """The team that was declared."""

    @property
    def limits(self) -> ChunkLimits:
        """The limits on chunks."""

    @property
    def books(self) -> StepBooks:
        """The books of the present session; read again for each use, because a new session has new books."""

    @property
    def session_lost(self) -> bool:
        """True if the learner no longer knows the session. Until `begin_session`, `may_step` is False and `send` drops.

        The stepping thread answers by discarding its open rows (`discarded{session_lost}`) in the old books, and then
        calls `begin_session`, so that the books change between two steps.
        """

    def begin_session(self) -> None:
        """Switches to the new session, with its books at zero."""

    def take_policy(self) -> ActingPolicy | None:
        """Returns the newest loaded policy, or None if it was taken. The last policy taken acts.

        Raises:
            PolicyUnusable: The newest policy was refused, and no newer one has arrived within the time-out.
        """

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Reports that the acting policy cannot act on the observations; returns the policy that replaces it.

        The replacement is the previous version if it is still available and of the same generation; it acts as long as
        the learner accepts its steps. With None, nothing acts until `take_policy` returns a newer one.

        Args:
            why: The policy's error.
        """

    def may_step(self, steps: int) -> bool:
        """Returns whether `steps` more may be recorded.

        False without credit in steps or bytes, under a hold, when the acting policy is not of the present generation,
        and when the window of unacked chunks is full.
        """

    def may_act(self, policy: ActingPolicy) -> bool:
        """Returns whether unrecorded steps may be taken, as in evaluations, which need no credit.

        False while the run is paused, the learner drains, or the policy is not of the present generation.
        """

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Returns a specific version; None until it is available. The first call requests it.

        A version that the learner no longer holds is replaced by the newest one, with a warning.
        """

    def opponent(self, pinned: Pinned) -> ActingPolicy | None:
        """Returns the policy of an opponent; None until it is available. The first call requests it.

        It is fetched once and kept for later matches, among a limited number of others. If the learner does not hold
        it, it is requested again after a while.
        """

    @property
    def has_used_quota(self) -> bool:
        """True if the actor's part of the next update is complete.

        Open segments must then end and be sent; `may_step` is False until the part grows.
        """

    @property
    def is_paused(self) -> bool:
        """True while an operator's pause holds the run."""

    @property
    def missing(self) -> str:
        """The reason why `may_step` is False, one of `actor_client.counts.WAIT_REASONS`."""

    def send(self, chunk: Chunk) -> None:
        """Takes over a sealed chunk. Never blocks.

        Fills in `sequence`, `produced_steps`, `discarded` and `ghost_steps`, and keeps the chunk until it is acked. A
        chunk of an old generation is dropped and counted (`dropped{generation}`).
        """


class SessionLink(Protocol):
    """One session of one actor process."""

    @property
    def run_seed(self) -> int:
        """The seed of the run."""

    @property
    def actor_index(self) -> int:
        """The actor's index in the run."""

    @property
    def assignment(self) -> policy_pb2.Assignment | None:
        """The newest assignment; None before the first. Each new one is another object."""


class Link(SessionLink, Protocol):
    """One session of an actor that declares its behavior before it steps."""

    @property
    def stopping(self) -> bool:
        """True once the actor must end: a final drain, a signal, or a fatal error."""

    @property
    def error(self) -> Exception | None:
        """The fatal error that ends the actor, if there is one."""

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> BehaviorLink:
        """Declares a behavior whose quotas the rollout follows; blocks and retries until it is answered.

        Args:
            spec: Observations and actions of the behavior.
            team: The team of the agents.
            agents: Number of agents that will act.
            timeout_seconds: Longest time to try; None = no limit.

        Raises:
            Exception: An error of the connection: the specs differ, or the time is over.
        """

    def wait(self, timeout_seconds: float) -> None:
        """Waits for a change (credit, hold, policy, stop), or until the time is over."""


class Declaration(Protocol):
    """A behavior id whose declaration is on its way to the learner."""

    @property
    def port(self) -> BehaviorLink | None:
        """The behavior's link; None until the learner has answered."""

    @property
    def refusal(self) -> str:
        """Why the learner does not take the behavior, where this does not end the actor; otherwise empty."""


class AgentLink(SessionLink, Protocol):
    """One session of an actor whose behaviors appear while it steps."""

    @property
    def counts(self) -> RolloutCounts:
        """The counters of the stepping thread."""

    def declare_soon(self, spec: BehaviorSpec, team: int, agents: int) -> Declaration:
        """Declares a behavior, or reports a larger number of its agents, without waiting for the answer."""
