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


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """When chunks are sent and how large they may get; answered by the learner at opening.

    Attributes:
        target_chunk_bytes: A chunk is sent once its rows hold this many bytes.
        max_chunk_bytes: No chunk holds more bytes of columns.
        max_chunk_age_seconds: A closed segment waits no longer before it is sent.
        max_chunk_steps: A chunk is sent once it holds this many rows, and holds no more; 0 = no limit.
    """

    target_chunk_bytes: int
    max_chunk_bytes: int
    max_chunk_age_seconds: float
    max_chunk_steps: int


class StepBooks(Protocol):
    """The books of one behavior in one session: produced = open + discarded + dropped + unacked + acked."""

    def produced(self, steps: int) -> None:
        """Counts recorded steps; they are open."""

    def discard(self, reason: str, steps: int) -> None:
        """Counts open steps that will never be sent."""

    def seal(self, steps: int) -> None:
        """Counts open steps that entered a chunk; they are unacked. Called just before `BehaviorLink.send`."""


class BehaviorLink(Protocol):
    """One declared behavior."""

    @property
    def behavior(self) -> str:
        """Its name, without a team."""

    @property
    def behavior_index(self) -> int:
        """The learner's number of the behavior."""

    @property
    def time_horizon(self) -> int:
        """Segments are at most this many steps long."""

    @property
    def max_policy_lag(self) -> int:
        """A segment is cut before its oldest row is further than this behind the acting version; 0 = no limit."""

    @property
    def cut_at_swap(self) -> bool:
        """True if open segments end when the policy is replaced (strict on-policy runs)."""

    @property
    def memory_stride(self) -> int:
        """Memory is recorded every so many rows; 0 = the policy has none."""

    @property
    def team(self) -> int:
        """The team that was declared."""

    @property
    def limits(self) -> ChunkLimits:
        """When to send, and how much at most."""

    @property
    def books(self) -> StepBooks:
        """The books of the present session. Read anew for each call: a new session has new books."""

    @property
    def session_lost(self) -> bool:
        """The learner no longer knows the session. Until `begin_session`, `may_step` is False and `send` drops.

        The stepping thread answers by discarding its open rows (`discarded{session_lost}`) in the old books, and then
        calls `begin_session`, so that the change of books happens between two steps and never amid one.
        """

    def begin_session(self) -> None:
        """Goes over to the new session: its books are at zero."""

    def take_policy(self) -> ActingPolicy | None:
        """Returns the newest loaded policy that was not taken yet. The one taken last is the acting one.

        Raises:
            PolicyUnusable: The newest one was refused, and no newer one came for so long that waiting is in vain.
        """

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Tells the learner that the acting policy cannot act on what is seen, and returns what acts instead.

        That is the version before it, if it is still here and of the same generation; it acts as far as the learner
        takes its steps. None: nothing acts until `take_policy` has a newer one.

        Args:
            why: What the policy raised.
        """

    def may_step(self, steps: int) -> bool:
        """Returns whether `steps` more may be recorded.

        False without credit in steps or bytes, under a hold, when the acting policy is not of the present generation,
        and when the window of unacked chunks is full.
        """

    def may_act(self, policy: ActingPolicy) -> bool:
        """Returns whether steps may be taken that are not recorded, as evaluations do: they need no credit.

        False while the run is paused, the learner drains, or the policy is not of the present generation.
        """

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Returns a version that need not be the newest one; None until it is here. The first call asks for it.

        A version that the learner no longer holds is replaced by the newest one, and that is said.
        """

    @property
    def missing(self) -> str:
        """The reason why `may_step` is False, a word of `actor_client.counts.WAIT_REASONS`."""

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
        """Which actor of the run this is."""

    @property
    def assignment(self) -> policy_pb2.Assignment | None:
        """The newest assignment; None before it answered. Another object whenever it asks again."""


class Link(SessionLink, Protocol):
    """One session of an actor that declares its behavior before it steps."""

    @property
    def stopping(self) -> bool:
        """True once the actor must end: a final drain, a signal, or a fatal error."""

    @property
    def error(self) -> Exception | None:
        """The fatal error that ends the actor, if there is one."""

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> BehaviorLink:
        """Declares a behavior; blocks and tries again until it is answered.

        Args:
            spec: What the behavior sees and does.
            team: The team of the agents.
            agents: How many agents will act.
            timeout_seconds: How long to try; None = for ever.

        Raises:
            Exception: The connection's own tree; a mismatch of specs, or the time is over.
        """

    def wait(self, timeout_seconds: float) -> None:
        """Returns when something changed (credit, hold, policy, stop), or after the time."""


class Declaration(Protocol):
    """A behavior id on its way to the learner."""

    @property
    def port(self) -> BehaviorLink | None:
        """The behavior; None until the learner has answered."""


class AgentLink(SessionLink, Protocol):
    """One session of an actor whose behaviors appear while it steps."""

    @property
    def counts(self) -> RolloutCounts:
        """Counts of the stepping thread."""

    def declare_soon(self, spec: BehaviorSpec, team: int, agents: int) -> Declaration:
        """Declares a behavior, or tells the learner of more agents of it, without waiting for the answer."""
