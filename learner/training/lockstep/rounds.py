"""One round: its players, and whether all its experience has arrived."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollcast.enums import AssignmentRole
from rollcast.v1 import policy_pb2

from learner.link.to_trainers import Actor, Declared, Experience
from learner.shared.exits import ExitCode, UserError
from learner.training.lockstep.round_queue import RoundQueue

ROW_COPIES = 2
"""Rows per step: each step may end a segment, which then also holds the observation after it."""


@dataclass(slots=True)
class Round:
    """A round in progress.

    Attributes:
        number: Number of the round, from 1.
        players: Players, by actor index.
        versions: Versions of the policies, by index of the behavior.
        trained: Indices of the behaviors that the round trains.
        gone: Sessions of players lost since the start of the round.
        is_released: Whether the trainers have the round.
    """

    number: int
    players: tuple[Actor, ...]
    versions: Mapping[int, int]
    trained: frozenset[int] = frozenset()
    gone: set[str] = field(default_factory=set)
    is_released: bool = False

    @property
    def session_ids(self) -> frozenset[str]:
        """Sessions of all players that began it."""
        return frozenset(player.session_id for player in self.players)

    def lose(self, live: Collection[str]) -> list[Actor]:
        """Notes lost players; returns those that were not lost before.

        Args:
            live: Sessions that are connected.
        """
        lost = [
            player for player in self.players if player.session_id not in live and player.session_id not in self.gone
        ]
        self.gone.update(player.session_id for player in lost)
        return lost

    def awaited(self, trained: Iterable[RoundQueue]) -> list[Actor]:
        """Returns the remaining players that have not ended the round of every trained behavior."""
        queues = {queue.behavior.index: queue for queue in trained}
        return [
            player
            for player in self.players
            if player.session_id not in self.gone
            and any(
                queues[index].ended.get(player.session_id) != self.number for index in player.agents if index in queues
            )
        ]

    def faults(self, behavior: Declared, items: Iterable[Experience]) -> Iterator[str]:
        """Yields the faults of a round that another run would not repeat."""
        version = self.versions.get(behavior.index)
        for item in items:
            chunk = item.chunk
            if chunk.rows and (chunk.base_version != version or "version_offset" in chunk.columns):
                yield f"actor {item.actor_index} acted with another version of {behavior.name} than {version}"


def plays(player: Actor, behaviors: Iterable[Declared]) -> bool:
    """Returns whether an actor plays any of the behaviors."""
    return any(behavior.index in player.agents for behavior in behaviors)


def quota_of(behaviors: Iterable[Declared], players: Sequence[Actor]) -> int:
    """Returns the number of steps per agent with which every behavior reaches its ``buffer_size``.

    A behavior with replay memory, whose size is ``buffer_size``, needs one segment of each agent.
    """
    quotas = [1]
    for behavior in behaviors:
        agents = sum(player.agents.get(behavior.index, 0) for player in players)
        if agents and behavior.settings.traits.replay:
            quotas.append(behavior.settings.time_horizon)
        elif agents:
            quotas.append(-(-behavior.settings.hyperparameters.buffer_size // agents))
    return max(quotas)


def misfits(behaviors: Iterable[Declared], steps: Mapping[str, int]) -> dict[str, int]:
    """Returns the ``buffer_size`` of behaviors whose rounds have another number of steps, by name.

    Args:
        behaviors: Trained behaviors.
        steps: Steps of a round, by name of the behavior.
    """
    sizes = {
        each.name: each.settings.hyperparameters.buffer_size for each in behaviors if not each.settings.traits.replay
    }
    return {name: size for name, size in sizes.items() if steps[name] not in {0, size}}


def check_room(behaviors: Iterable[Declared], players: Sequence[Actor], quota_steps: int) -> None:
    """Refuses a round that cannot fit the queue, because it could never end.

    Raises:
        UserError: A round would not fit.
    """
    for behavior in behaviors:
        agents = sum(player.agents.get(behavior.index, 0) for player in players)
        needed_bytes = ROW_COPIES * agents * quota_steps * behavior.spec.step_bytes
        if needed_bytes > behavior.queue_bytes:
            raise too_large(
                behavior,
                f"has {agents * quota_steps} steps ({agents} agents, {quota_steps} each) and may take {needed_bytes} bytes",
            )


def check_full(queues: Iterable[RoundQueue]) -> None:
    """Refuses a round that has not fit the queue, because it can never end.

    Raises:
        UserError: A round has not fit.
    """
    for queue in queues:
        if queue.full is not None:
            raise too_large(queue.behavior, f"takes more than the {queue.full.queued_bytes} bytes received so far")


def too_large(behavior: Declared, what: str) -> UserError:
    """Returns the error for a round that cannot end for lack of memory."""
    return UserError(
        ExitCode.RUN_FILE,
        f"a round of {behavior.name} {what}, but its queue holds {behavior.queue_bytes} bytes: raise "
        "rollcast.queue_bytes, or lower rollcast.lockstep.quota_steps or the number of agents",
    )


def assigned(
    behaviors: Iterable[Declared], players: Sequence[Actor], versions: Mapping[int, int]
) -> list[policy_pb2.BehaviorAssignment]:
    """Returns the assignment of each behavior id for a round.

    Args:
        behaviors: All behaviors of the run, including those whose training ended.
        players: Players of the round.
        versions: Versions by index of the behavior.
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
