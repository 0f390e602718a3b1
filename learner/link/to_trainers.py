"""Messages from the service to the trainers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk

from learner.link.control import Close, Request, Seen, StopTurns
from learner.link.footprint import EstimateMemory
from learner.link.opening import Begin, Check, GiveUp, Hello
from learner.link.turns import Follow, Over, Turn
from learner.shared.leave_one_out import Source
from learner.shared.settings.trainer import TrainerSettings


@dataclass(frozen=True, slots=True)
class Declared:
    """Declares a behavior, which then gets a trainer. Its experience follows.

    Attributes:
        index: Index on the link and on the wire.
        name: Name without a team.
        spec: Observations and actions.
        settings: Trainer settings from the run file.
        time_horizon: Longest segment, in steps.
        memory_size: Number of memory values of an agent; 0 for a policy without memory.
        memory_stride: Rows between two records of memory; 0 for a policy without memory.
        max_policy_lag: Versions after which a row of an open segment forces a cut; 0 sets no limit.
        cut_at_swap: Whether open segments are cut at each policy swap.
        queue_bytes: Memory for experience that its trainer has not taken, in bytes.
    """

    index: int
    name: str
    spec: BehaviorSpec
    settings: TrainerSettings
    time_horizon: int
    memory_size: int
    memory_stride: int
    max_policy_lag: int
    cut_at_swap: bool
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class Experience:
    """Sends a chunk that was checked and is in the ledger as queued.

    Attributes:
        behavior: Index of its behavior.
        sequence: Grows by one with each chunk of the behavior, from 1.
        chunk: The arrays; may be read-only views of the received message.
        session_id: Session of the sender.
        actor_index: The sender's place in the run.
        encoded_bytes: Size on the wire in bytes, as counted by credit.
        received_at: When it was received, in monotonic seconds.
        principal: The sender's principal; empty if actors are not identified.
    """

    behavior: int
    sequence: int
    chunk: Chunk
    session_id: str
    actor_index: int
    encoded_bytes: int
    received_at: float
    principal: str = ""

    @property
    def source(self) -> Source:
        """The sender, as a source of values."""
        return Source(self.principal, self.actor_index)


@dataclass(frozen=True, slots=True)
class QueueFull:
    """Reports that a chunk of a lock-step round has no room, so that the round cannot end.

    Attributes:
        behavior: Index of the behavior.
        queued_bytes: Memory of the waiting chunks, in bytes; with `place`, of those of this actor.
        capacity_bytes: Memory available for them, in bytes.
        place: Place of the actor that takes most of the memory, and whose chunks must be dropped at once; None if the
            round has only one actor.
    """

    behavior: int
    queued_bytes: int
    capacity_bytes: int
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Books:
    """Answers a `learner.link.to_front.Cut`; includes the effect of all earlier messages of the trainers.

    Attributes:
        number: Number of the cut.
        state: Behaviors, ledger and sessions at one moment, as plain values.
    """

    number: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor that is present, or was within its lease.

    Attributes:
        session_id: Id of its session.
        name: Name of the actor; may repeat.
        actor_index: Its place in the run.
        is_connected: Whether its upload stream is open.
        agents: Number of active agents, at least 1, by index of their behavior.
        teams: Declared teams, ascending, by index of their behavior.
        opponent: Name of the script with which it plays opponents; empty if it plays them with their policies.
        opponent_by_seat: Whether the script plays only the opponents whose seats name no policy.
        principal: Its principal; empty if actors are not identified.
    """

    session_id: str
    name: str
    actor_index: int
    is_connected: bool
    agents: Mapping[int, int]
    teams: Mapping[int, tuple[int, ...]]
    opponent: str = ""
    principal: str = ""
    opponent_by_seat: bool = False

    @property
    def source(self) -> Source:
        """The actor, as a source of values."""
        return Source(self.principal, self.actor_index)


@dataclass(frozen=True, slots=True)
class Actors:
    """Lists the present actors. All messages of an actor missing from the list have already arrived.

    Attributes:
        actors: All present actors.
        steps_taken: Steps of all actors since the run began, as far as they reported them, by index of the behavior; at
            most a second old.
    """

    actors: tuple[Actor, ...] = ()
    steps_taken: Mapping[int, int] = field(default_factory=dict)


ToTrainers = (
    Check
    | Hello
    | Begin
    | Declared
    | Experience
    | QueueFull
    | Books
    | Actors
    | EstimateMemory
    | Request
    | StopTurns
    | Seen
    | Close
    | GiveUp
    | Follow
    | Over
    | Turn
)
