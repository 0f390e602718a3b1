"""Plays random games of agents that arrive, ask, act and leave, and records the true events."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import GroupEnd, SegmentEnd, StatAggregation
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.connection.books import Books
from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents
from actor_client.rollout.agents.recorder import AgentRecorder
from tests.actor_client.rollout.harness import KeepingLink

SPEC = BehaviorSpec(
    name="Model",
    observations=(
        ObservationSpec("id", np.dtype(np.float32), (1,)),
        ObservationSpec("wide", np.dtype(np.uint8), (2, 3)),
    ),
    action=ActionSpec(continuous_size=1, discrete_branches=(3, 2)),
    grouped=True,
)


@dataclass
class Step:
    """One step of one agent."""

    episode: Episode
    index: int
    seen: float
    masks: tuple[int, ...]
    group: int
    version: int
    generation: int
    action: int
    message: int
    reward: float = 0.0
    group_reward: float = 0.0
    next_seen: float | None = None
    end: SegmentEnd = SegmentEnd.CUT


@dataclass
class Episode:
    """One episode of one agent; `waiting` and `flying` are its latest observation and action."""

    env: int
    identity: int
    revision: int
    group: int
    steps: list[Step] = field(default_factory=list)
    waiting: tuple[float, tuple[int, ...]] | None = None
    flying: Step | None = None
    is_known: bool = True
    end: SegmentEnd | None = None
    first_version: int | None = None
    last_version: int = 0
    group_end: GroupEnd = GroupEnd.CONTINUES
    has_left: bool = False


@dataclass
class Play:
    """Feeds a recorder and records all events."""

    case: SimpleNamespace
    random: np.random.Generator = field(init=False)
    link: KeepingLink = field(init=False)
    recorder: AgentRecorder = field(init=False)
    now: float = 0.0
    generation: int = 1
    version: int = 0
    numbers: float = 0.0
    messages: int = 0
    running: dict[tuple[int, int], Episode] = field(default_factory=dict)
    slots: dict[int, list[tuple[int, Episode]]] = field(default_factory=dict)
    taken: dict[float, Step] = field(default_factory=dict)
    ended: list[Episode] = field(default_factory=list)
    old_books: list[Books] = field(default_factory=list)
    stats: list[tuple[str, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Starts with version 0 of generation 1."""
        case = self.case
        self.random = np.random.default_rng(case.seed)
        self.link = KeepingLink(
            SPEC,
            time_horizon=case.horizon,
            max_policy_lag=case.lag,
            cut_at_swap=case.cut_at_swap,
            limits=case.chunk_limits,
        )
        self.recorder = AgentRecorder(SPEC, self.link, clock=lambda: self.now)
        self.recorder.swap(1, 0)

    def run(self) -> None:
        """Plays; then everybody is cut off."""
        case = self.case
        for _ in range(case.messages):
            self.now += float(self.random.random())
            self.message(int(self.random.integers(case.envs)))
            swaps, flushes, loses = self.random.random(3) < (case.swap_share, case.flush_share, case.loss_share)
            if swaps:
                self.swap()
            if flushes:
                (self.recorder.flush if self.random.random() < 0.5 else self.recorder.poll)()
            if loses:
                losses = [self.lose_session, self.lose_env, self.lose_generation, self.leave_env]
                losses[int(self.random.integers(4))]()
            self.check_books()
        self.recorder.cut()
        self.check_books()

    def check_books(self) -> None:
        """Checks that every row has one outcome and that the recorder counts open rows."""
        assert all(books.balanced for books in (self.link.books, *self.old_books))
        assert self.link.books.view().open == self.recorder.open_steps
        assert self.recorder.in_flight == sum(episode.flying is not None for episode in self.running.values())
        assert self.recorder.agents == len(self.running)
        # Credit always suffices for these rows, including those held back for group mates.
        possible = self.recorder.most_agents * self.recorder.horizon
        assert self.recorder._segments.rows + self.recorder.agents <= possible

    def message(self, env: int) -> None:
        """Sends the message of one environment: agents that ended and agents that ask."""
        self.messages += 1
        self.answer(env)
        mine = {identity: episode for (where, identity), episode in self.running.items() if where == env}
        ending = [identity for identity in mine if self.random.random() < self.case.end_share]
        self.finish(env, ending)
        asking = [identity for identity in range(self.case.identities) if self.random.random() < 0.7]
        self.random.shuffle(asking)
        self.observe(env, asking)
        if self.random.random() < 0.3:
            key, value = f"key {self.random.integers(5)}", self.number()
            self.stats.append((key, env, value))
            self.recorder.add_stats(env, [(key, value, StatAggregation.SUM)])

    def finish(self, env: int, identities: list[int]) -> None:
        """Ends some agents, sometimes including an unknown one."""
        strangers = [1000] if self.random.random() < 0.1 else []
        ids = identities + strangers
        count = len(ids)
        seen, rewards, group_rewards = self.take(count), self.rewards(count), self.rewards(count)
        cut_off = self.random.random(count) < 0.5
        faulty = self.random.random(count) < self.case.fault_share
        batch = EndedAgents(
            np.array(ids, np.int64), observed(seen), cut_off, rewards, np.zeros(count, np.int64), group_rewards,
            faulty if faulty.any() else None,
        )  # fmt: skip
        before = [(identity, self.running.pop((env, identity))) for identity in identities]
        stands = self.stands(env, before, cut_off)
        for place, (_, episode) in enumerate(before):
            self.complete(episode, float(rewards[place]), float(group_rewards[place]), float(seen[place]))
            episode.end = SegmentEnd.TRUNCATED if cut_off[place] else SegmentEnd.TERMINATED
            episode.is_known &= not faulty[place]
            episode.group_end = stands.get(episode.group, GroupEnd.CONTINUES)
            if episode.steps:
                episode.steps[-1].end = episode.end
                self.ended.append(episode)
        self.recorder.finish(env, batch)

    def stands(self, env: int, ending: list[tuple[int, Episode]], cut_off: NDArray[np.bool_]) -> dict[int, GroupEnd]:
        """Returns how the groups of agents that end stand afterwards."""
        left = {episode.group for (where, _), episode in self.running.items() if where == env}
        found = {}
        for group in {episode.group for _, episode in ending} - left - {0}:
            outside = any(cut_off[place] for place, (_, episode) in enumerate(ending) if episode.group == group)
            found[group] = GroupEnd.TRUNCATED if outside else GroupEnd.TERMINATED
        return found

    def observe(self, env: int, identities: list[int]) -> None:
        """Lets some agents ask, including new ones."""
        count = len(identities)
        seen, rewards, group_rewards = self.take(count), self.rewards(count), self.rewards(count)
        faulty = self.random.random(count) < self.case.fault_share
        masks = np.ones((count, 5), np.uint8)
        masks[:, 0] = self.random.integers(0, 2, count)
        groups = []
        for place, identity in enumerate(identities):
            episode = self.running.get((env, identity))
            if episode is None:
                group = int(self.random.integers(self.case.groups + 1))
                episode = Episode(env, identity, self.messages, group)
                self.running[env, identity] = episode
            self.complete(episode, float(rewards[place]), float(group_rewards[place]), float(seen[place]))
            if self.case.groups and self.random.random() < 0.02:
                episode.group = int(self.random.integers(self.case.groups + 1))
            groups.append(episode.group)
            episode.is_known &= not faulty[place]
            episode.waiting = float(seen[place]), tuple(masks[place].tolist())
        batch = AskingAgents(
            np.array(identities, np.int64), observed(seen), masks if (masks == 0).any() else None, rewards,
            np.array(groups, np.int64), group_rewards, faulty if faulty.any() else None,
        )  # fmt: skip
        slots = self.recorder.observe(env, batch, settings_revision=self.messages)
        episodes = [self.running[env, identity] for identity in identities]
        self.slots[env] = list(zip(slots.tolist(), episodes, strict=True))

    def complete(self, episode: Episode, reward: float, group_reward: float, seen: float) -> None:
        """Completes the pending step of an agent that appears again."""
        step, episode.flying = episode.flying, None
        if step is not None:
            step.reward, step.group_reward, step.next_seen = reward, group_reward, seen
            episode.steps.append(step)
            self.taken[step.seen] = step

    def answer(self, env: int) -> None:
        """Answers the waiting agents of one or more environments in random order."""
        envs = [env, *(other for other in self.slots if other != env and self.random.random() < 0.3)]
        waiting = [entry for where in envs for entry in self.slots.pop(where, [])]
        self.random.shuffle(waiting)
        count = len(waiting)
        acts = self.random.integers(0, 2, count)
        for (_, episode), act in zip(waiting, acts.tolist(), strict=True):
            if self.running.get((episode.env, episode.identity)) is not episode or episode.waiting is None:
                continue  # forgotten in the meantime
            (seen, masks), episode.waiting = episode.waiting, None
            episode.flying = Step(
                episode, len(episode.steps), seen, masks, episode.group, self.version, self.generation, act, self.messages
            )  # fmt: skip
            episode.last_version = self.version
            if episode.first_version is None:
                episode.first_version = self.version
        discrete = np.stack([np.ones(count), acts], axis=1).astype(np.int32)
        actions = Actions(
            (acts[:, None] / 8).astype(np.float32),
            discrete,
            np.full((count, 3), -float(self.version), np.float32),
            None,
        )
        self.recorder.act(np.array([slot for slot, _ in waiting], np.int64), actions)

    def swap(self) -> None:
        """Swaps to a version that is 1 to 3 newer."""
        self.version += int(self.random.integers(1, 4))
        self.recorder.swap(self.generation, self.version)

    def lose_generation(self) -> None:
        """Starts a new generation, perhaps at a lower version."""
        self.generation += 1
        self.version = int(self.random.integers(3))
        self.recorder.swap(self.generation, self.version)
        for episode in self.running.values():
            if episode.first_version is not None:
                episode.first_version = episode.last_version = self.version

    def lose_session(self) -> None:
        """Makes the learner forget the session."""
        self.recorder.discard("session_lost")
        self.old_books.append(self.link.books)
        assert self.link.books.view().open == 0
        self.link.begin_session()

    def lose_env(self) -> None:
        """Removes an environment, perhaps while its agents wait."""
        env = int(self.random.integers(self.case.envs))
        self.recorder.drop_env(env, "reset")
        self.running = {key: episode for key, episode in self.running.items() if key[0] != env}

    def leave_env(self) -> None:
        """Interrupts the episodes of an environment at its agents' last observations, perhaps while they wait."""
        env = int(self.random.integers(self.case.envs))
        gone = [(identity, episode) for (where, identity), episode in self.running.items() if where == env]
        self.running = {key: episode for key, episode in self.running.items() if key[0] != env}
        stands = self.stands(env, gone, np.ones(len(gone), np.bool_))
        for _, episode in gone:
            episode.end, episode.has_left = SegmentEnd.TRUNCATED, True
            episode.group_end = stands.get(episode.group, GroupEnd.CONTINUES)
            if episode.steps:
                episode.steps[-1].end = episode.end
                self.ended.append(episode)
        self.recorder.leave(env)

    def number(self) -> float:
        """Returns a number that occurs once."""
        self.numbers += 1
        return self.numbers

    def take(self, count: int) -> NDArray[np.float32]:
        """Returns numbers that occur once."""
        return np.array([self.number() for _ in range(count)], np.float32)

    def rewards(self, count: int) -> NDArray[np.float32]:
        """Returns small whole numbers, whose sums are exact."""
        return self.random.integers(-5, 6, count).astype(np.float32)


def observed(numbers: NDArray[np.float32]) -> list[NDArray[Any]]:
    """Returns both observations, made from one number for each agent."""
    wide = np.broadcast_to((numbers % 251).astype(np.uint8)[:, None, None], (len(numbers), 2, 3))
    return [numbers[:, None], wide.copy()]
