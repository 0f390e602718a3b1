"""One round: who plays it, and whether everything that it brings is here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollcast.enums import AssignmentRole
from rollcast.v1 import policy_pb2

from learner.common.exits import ExitCode, UserError
from learner.ingest.behaviors import Behavior
from learner.ingest.round_queue import RoundQueue
from learner.ingest.session import ActorSession
from learner.link.experience import QueuedChunk

ROW_COPIES = 2
"""Each step may end a segment, which then holds the observation after it, too."""


@dataclass(frozen=True, slots=True)
class Player:
    """An actor that plays a round.

    Attributes:
        session_id: its session.
        name: of the actor.
        actor_index: its place in the run.
        agents: that act, by index of their behavior.
        teams: it has declared, by index of their behavior.
    """

    session_id: str
    name: str
    actor_index: int
    agents: Mapping[int, int]
    teams: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, session: ActorSession) -> Player:
        """Reads a session; under the table's lock."""
        return cls(
            session_id=session.session_id,
            name=session.actor_name,
            actor_index=session.actor_index,
            agents={index: max(1, account.agents) for index, account in session.accounts.items()},
            teams={index: tuple(sorted(account.teams)) for index, account in session.accounts.items()},
        )

    def plays(self, behaviors: Iterable[Behavior]) -> bool:
        """Says whether it plays any of these."""
        return any(behavior.index in self.agents for behavior in behaviors)


@dataclass(slots=True)
class Round:
    """A round that is played.

    Attributes:
        number: of the round, from 1.
        players: who plays it, by actor index.
        versions: that it is played under, by index of the behavior.
        trained: indices of the behaviors that it trains.
        gone: sessions of players that were lost meanwhile.
        is_released: the trainers have it.
    """

    number: int
    players: tuple[Player, ...]
    versions: Mapping[int, int]
    trained: frozenset[int] = frozenset()
    gone: set[str] = field(default_factory=set)
    is_released: bool = False

    @property
    def session_ids(self) -> frozenset[str]:
        """The sessions of all who began it."""
        return frozenset(player.session_id for player in self.players)

    def lose(self, live: Collection[str]) -> list[Player]:
        """Notes which players are gone; returns those that were not gone before.

        Args:
            live: the sessions that there are.
        """
        lost = [
            player for player in self.players if player.session_id not in live and player.session_id not in self.gone
        ]
        self.gone.update(player.session_id for player in lost)
        return lost

    def awaited(self, behaviors: Iterable[Behavior]) -> list[Player]:
        """Returns the players that are still here and have not ended the round of each behavior that is trained."""
        queues = {behavior.index: round_queue(behavior) for behavior in behaviors}
        return [
            player
            for player in self.players
            if player.session_id not in self.gone
            and any(
                queues[index].ended.get(player.session_id) != self.number for index in player.agents if index in queues
            )
        ]

    def faults(self, behavior: Behavior, items: Iterable[QueuedChunk]) -> Iterator[str]:
        """Yields what of a round another run would not repeat."""
        version = self.versions.get(behavior.index)
        for item in items:
            chunk = item.chunk
            if chunk.rows and (chunk.base_version != version or "version_offset" in chunk.columns):
                yield f"actor {item.actor_index} acted under another version than {version} of {behavior.name}"


def round_queue(behavior: Behavior) -> RoundQueue:
    """Returns the queue of a behavior.

    Raises:
        TypeError: it is not one of lock-step; a fault in the learner's own code.
    """
    queue = behavior.queue
    if not isinstance(queue, RoundQueue):
        raise TypeError(f"the queue of {behavior.name} is a {type(queue).__name__}")
    return queue


def quota_of(behaviors: Iterable[Behavior], players: Sequence[Player]) -> int:
    """Returns how many steps each agent must take so that every behavior passes its ``buffer_size``.

    One that keeps a replay memory, whose size ``buffer_size`` is, needs a segment of each agent.
    """
    quotas = [1]
    for behavior in behaviors:
        agents = sum(player.agents.get(behavior.index, 0) for player in players)
        if agents and behavior.settings.traits.replay:
            quotas.append(behavior.settings.time_horizon)
        elif agents:
            quotas.append(behavior.settings.hyperparameters.buffer_size // agents + 1)
    return max(quotas)


def check_room(behaviors: Iterable[Behavior], players: Sequence[Player], quota_steps: int) -> None:
    """Refuses a round that would not fit the queue: it could never end.

    Raises:
        UserError: one would not.
    """
    for behavior in behaviors:
        agents = sum(player.agents.get(behavior.index, 0) for player in players)
        needed_bytes = ROW_COPIES * agents * quota_steps * behavior.spec.step_bytes
        if needed_bytes > behavior.queue.capacity_bytes:
            raise _too_large(
                behavior,
                f"has {agents * quota_steps} steps ({agents} agents, {quota_steps} each) and may take {needed_bytes}",
            )


def check_full(behaviors: Iterable[Behavior]) -> None:
    """Refuses a round that has turned out not to fit the queue: it could never end.

    Raises:
        UserError: one has.
    """
    for behavior in behaviors:
        if round_queue(behavior).is_full:
            raise _too_large(behavior, f"takes more than the {behavior.queue.queued_bytes} that have come so far")


def _too_large(behavior: Behavior, what: str) -> UserError:
    return UserError(
        ExitCode.RUN_FILE,
        f"a round of {behavior.name} {what} bytes, and its queue holds {behavior.queue.capacity_bytes}: raise "
        "rollcast.queue_bytes, or lower rollcast.lockstep.quota_steps or the number of agents",
    )


def assigned(
    behaviors: Iterable[Behavior], players: Sequence[Player], versions: Mapping[int, int]
) -> list[policy_pb2.BehaviorAssignment]:
    """Returns what each behavior id is asked to do in a round.

    Args:
        behaviors: all of the run, those that are trained no more included.
        players: who plays.
        versions: by index of the behavior.
    """
    return [
        policy_pb2.BehaviorAssignment(
            behavior=behavior.name,
            team=team,
            role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN),
            lockstep_version=versions.get(behavior.index, 0),
        )
        for behavior in behaviors
        for team in sorted({team for player in players for team in player.teams.get(behavior.index, ())})
    ]
