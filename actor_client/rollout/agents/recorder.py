"""Stops 1 and 2 of a step's path for agents that step independently: makes rows, segments and chunks of their steps."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd, StatAggregation
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle

from actor_client.policy.actions import NO_MEMORY, Actions, MemoryForm
from actor_client.rollout.agents.agent import Agent, unique_number
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents, together
from actor_client.rollout.agents.outbox import Outbox
from actor_client.rollout.agents.rows import RowPool
from actor_client.rollout.agents.segmenter import Segmenter
from actor_client.rollout.assignment import Seat
from actor_client.rollout.episodes import UNKNOWN, EpisodeRecord
from actor_client.rollout.link import BehaviorLink

MAX_AGENTS: Final = 2**14
"""Most agents of one environment. Beyond this, the oldest agents that do not report are assumed to have gone."""
NOT_FINITE: Final = "not_finite"
GENERATION: Final = "generation"
TOO_MANY_AGENTS: Final = "too_many_agents"

Index = NDArray[np.int64]

_log = structlog.get_logger(__name__)


class AgentRecorder:
    """Records the agents of one behavior id, in any number of environments, each with its own pace.

        recorder.finish(env, ended)               # first the ended agents,
        slots = recorder.observe(env, asking)     # then the asking agents
        recorder.act(slots, policy.act(...))      # one answer, also for several environments

    A row is complete, and counts as produced, when its agent reports again with the reward. A segment ends with
    its episode, at the time horizon, where a longer one would not fit a chunk, before its oldest row passes the policy
    lag, at a swap if the link says so, and when `cut` is called.

    Args:
        spec: The behavior's spec.
        link: The link that takes chunks and gives the limits.
        clock: Monotonic seconds.
        max_agents: See `MAX_AGENTS`.

    Attributes:
        seat: The part in the present match, for episodes that begin now; None outside of matches.
        most_agents: The largest number of agents at one time, on which the learner's credit should be based.
        in_flight: Agents that were answered and have not reported again; each will produce a row.
        unusable_episodes: Finished episodes that were not reported, because their returns are unknown or beyond
            float32.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        link: BehaviorLink,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_agents: int = MAX_AGENTS,
    ) -> None:
        self._link = link
        self._clock = clock
        self._pool = RowPool(spec)
        self._outbox = Outbox(spec, link, self._pool)
        self._agents: dict[int, dict[int, Agent]] = {}
        self._segments = Segmenter(link, self._pool, self._outbox)
        self._waiting: dict[int, Agent] = {}
        self._next_ticket = 0
        self._episodes = 0
        self._generation: int | None = None
        self._version = 0
        self._notices = Throttle()
        self._max_agents = max_agents
        self.seat: Seat | None = None
        self.most_agents = 0
        self.in_flight = 0
        self.unusable_episodes = 0

    @property
    def horizon(self) -> int:
        """Most rows of a segment: the time horizon, or fewer if a chunk has room for fewer."""
        return self._outbox.horizon

    @property
    def agents(self) -> int:
        """Number of agents with running episodes."""
        return sum(map(len, self._agents.values()))

    @property
    def open_steps(self) -> int:
        """Number of complete rows that are in no chunk yet."""
        return self._segments.rows + self._outbox.rows

    def observe(self, env: int, batch: AskingAgents, *, settings_revision: int = 0) -> Index:
        """Completes the rows of the agents' last actions and begins new ones; sends due data.

        If an agent asks again before it was answered, its last request counts.

        Args:
            env: Number of the environment.
            batch: The n asking agents.
            settings_revision: Revision of the environment's settings, for episodes that begin here.

        Returns:
            Slots for `act`, int64 [n].
        """
        return self.observe_together([(env, batch, settings_revision)])

    def observe_together(self, asked: Sequence[tuple[int, AskingAgents, int]]) -> Index:
        """Does what `observe` does, for several environments at once, which costs less.

        Args:
            asked: Environment, asking agents and settings revision of each message; n agents together. No environment twice.

        Returns:
            Slots for `act`, int64 [n].
        """
        now = self._clock()
        batch = together([batch for _, batch, _ in asked])
        count = len(batch.ids)
        if not count:
            return np.zeros(0, np.int64)
        first_ticket = self._next_ticket
        self._next_ticket += count
        rows = self._pool.take(count)
        self._pool.observe(rows, batch.observations, batch.masks)
        asking = []
        for env, part, settings_revision in asked:
            known = self._agents.setdefault(env, {})
            for identity in part.ids.tolist():
                agent = known.get(identity)
                if agent is None:
                    self._episodes += 1
                    agent = Agent(env, unique_number(env, identity), self._episodes, settings_revision, seat=self.seat)
                    known[identity] = agent
                asking.append(agent)
        self.in_flight -= self._segments.complete(asking, batch, range(count))
        waiting = self._waiting
        for ticket, (agent, row) in enumerate(zip(asking, rows.tolist(), strict=True), start=first_ticket):
            if waiting.pop(agent.ticket, None) is not None:
                self._pool.give_back((agent.pending,))
                agent.void = ""
            agent.pending, agent.ticket = row, ticket
            waiting[ticket] = agent
        if batch.faulty is not None:
            self._drop([agent for agent, bad in zip(asking, batch.faulty, strict=True) if bad], NOT_FINITE)
        self._segments.regroup(asking, batch.group_ids.tolist(), rows, first_ticket, now)
        self._segments.cut_due(asking, now)
        agents = self.agents
        self.most_agents = max(self.most_agents, agents)
        self._segments.ease(agents, self.most_agents, now)
        for env, part, _ in asked:
            if len(self._agents[env]) > self._max_agents:
                self._forget_oldest(env, set(part.ids.tolist()))
        if self._outbox.is_due(now):
            self.flush()
        return np.arange(first_ticket, self._next_ticket)

    def act(self, slots: Index, actions: Actions) -> None:
        """Notes the agents' actions.

        Agents that were forgotten in the meantime are ignored.

        Args:
            slots: Slots that `observe` returned, in any order, int64 [n].
            actions: One row per agent.
        """
        tickets = slots.tolist()
        asking = list(map(self._waiting.get, tickets))
        agents = [agent for agent in asking if agent is not None]
        if len(agents) < len(tickets):
            actions = actions.part([place for place, agent in enumerate(asking) if agent is not None])
        if not agents:
            return
        version = self._version
        self._pool.act([agent.pending for agent in agents], actions, version, self._clock())
        for agent in agents:
            del self._waiting[agent.ticket]
            agent.answered(version)
        self.in_flight += len(agents)

    def finish(self, env: int, batch: EndedAgents, results: NDArray[np.int8] | None = None) -> None:
        """Completes the last rows of agents and ends their episodes; unknown agents are ignored.

        Args:
            env: Number of the environment.
            batch: Agents whose episodes ended.
            results: Results of their games as the environment says them, a `GameResult` each; None = it says none.
        """
        ids = batch.ids.tolist()
        if not ids:
            return
        now = self._clock()
        known = self._agents.get(env, {})
        places = [place for place, identity in enumerate(ids) if identity in known]
        ended = [known.pop(ids[place]) for place in places]
        self.in_flight -= self._segments.complete(ended, batch, places)
        if batch.faulty is not None:
            self._drop([agent for agent, place in zip(ended, places, strict=True) if batch.faulty[place]], NOT_FINITE)
        rows = self._pool.take(len(ids))
        self._pool.observe(rows, batch.observations, None)
        finals, interrupted = rows.tolist(), batch.interrupted.tolist()
        cut_off = [interrupted[place] for place in places]
        groups = [agent.group for agent in ended]
        self._pool.give_back(self._segments.end(ended, cut_off, [finals[place] for place in places], now))
        self._segments.ease(self.agents, self.most_agents, now)
        said = [UNKNOWN if results is None else int(results[place]) for place in places]
        for agent, is_cut_off, group, result in zip(ended, cut_off, groups, said, strict=True):
            end = SegmentEnd.TRUNCATED if is_cut_off else SegmentEnd.TERMINATED
            self._record(agent, agent.record(end, group, result), now)
            self._forget(agent)
        self._pool.give_back([finals[place] for place in set(range(len(ids))) - set(places)])
        if self._outbox.is_due(now):
            self.flush()

    def _record(self, agent: Agent, record: EpisodeRecord | None, now: float) -> None:
        """Reports an ended episode, unless it has no steps or its return is unknown."""
        if not agent.steps:
            return
        if record is not None:
            self._outbox.record(record, now)
            return
        self.unusable_episodes += 1
        if (left_out := self._notices.admit("episode_not_finite")) is not None:
            _log.warning(
                "episode_not_finite",
                unusable_episodes=self.unusable_episodes,
                consequence="its return is not reported",
                left_out=left_out,
            )

    def drop_env(self, env: int, reason: str) -> None:
        """Forgets the agents of an environment that was lost or reset, without records of their episodes.

        Args:
            env: Number of the environment.
            reason: The reason in the books for their open rows.
        """
        for agent in self._agents.pop(env, {}).values():
            self._lose(agent, reason)

    def leave(self, env: int) -> None:
        """Interrupts the episodes of an environment that has gone: the last observation of each agent is its final one.

        The outcomes of the last actions are unknown: their rows are not recorded. A match has no result.

        Args:
            env: Number of the environment.
        """
        now = self._clock()
        gone = list(self._agents.pop(env, {}).values())
        finals = []
        for agent in gone:
            finals.append(agent.pending)
            agent.pending = -1
            self._forget(agent)
        groups = [agent.group for agent in gone]
        self._pool.give_back(self._segments.end(gone, [True] * len(gone), finals, now))
        for agent, group in zip(gone, groups, strict=True):
            if agent.seat is None:
                self._record(agent, agent.record(SegmentEnd.TRUNCATED, group), now)

    def assign(self, seat: Seat | None, told_by: int) -> None:
        """Begins another match, in which episodes take part that have no action yet.

        Args:
            seat: The part in it; None outside of matches.
            told_by: Number of the assignment, for the segments that are sent from now on.
        """
        self.seat, self._outbox.assignment = seat, told_by
        for agent in self._all():
            if agent.first_version is None:
                agent.seat = seat

    def forget_all(self, reason: str) -> None:
        """Forgets all agents, without records of their episodes.

        Args:
            reason: The reason in the books for their open rows.
        """
        for env in list(self._agents):
            self.drop_env(env, reason)

    def swap(self, generation: int, version: int, memory: MemoryForm = NO_MEMORY) -> None:
        """Switches to another policy; sends closed segments.

        Rows of another generation are discarded; rows in flight are discarded when they are complete. The memory may
        have another form.

        Args:
            generation: Its generation.
            version: Its version.
            memory: Form of an agent's memory.
        """
        link = self._link
        lag = 1 if link.cut_at_swap else link.max_policy_lag
        self._segments.cut_through = version - lag if lag else -1
        if generation != self._generation:
            self._pool.remember(memory)
            self.discard(GENERATION)
            for agent in self._all():
                agent.renew(version, GENERATION)
        else:
            self._segments.cut_old(self._all(), self._clock())
            self.flush()
        self._generation, self._version = generation, version

    def discard(self, reason: str) -> None:
        """Discards all rows that are in no chunk yet, and the records of their episodes; running episodes continue.

        The link's limits are read again, because the session or the learner has changed.

        Args:
            reason: The reason in the books.
        """
        for agent in self._all():
            self._segments.give_up(agent, reason)
        self._segments.release_held(self._clock())
        rows = self._outbox.discard()
        if rows:
            self._link.books.discard(reason, rows)
        self._outbox.prepare()

    def cut(self) -> None:
        """Ends all open segments and sends everything, because the actor is about to stop."""
        self._segments.cut(self._all(), self._clock())
        self.flush()

    def flush(self) -> None:
        """Sends all closed segments, the episodes that ended with them, and statistics."""
        self._outbox.flush(self._generation, self.agents, self._clock())

    def poll(self) -> None:
        """Sends data that is old enough; must be called regularly while no agent reports."""
        if self._outbox.is_due(self._clock()):
            self.flush()

    def add_stats(self, env: int, records: Iterable[tuple[str, float, StatAggregation]]) -> None:
        """Sends statistics with the next chunk.

        Args:
            env: Number of the environment that reported them.
            records: Key, value and aggregation of each.
        """
        self._outbox.stats.add(env, records, self._clock())

    def _all(self) -> Iterator[Agent]:
        return chain.from_iterable(known.values() for known in self._agents.values())

    def _drop(self, agents: Sequence[Agent], reason: str) -> None:
        """Discards open segments and pending rows; the returns become unknown."""
        for agent in agents:
            self._segments.give_up(agent, reason)
            agent.void = reason
            agent.unusable = True

    def _forget_oldest(self, env: int, present: Collection[int]) -> None:
        """Forgets absent agents until the limit is met, or none is left."""
        known = self._agents[env]
        surplus = [identity for identity in known if identity not in present][: len(known) - self._max_agents]
        for identity in surplus:
            self._lose(known.pop(identity), TOO_MANY_AGENTS)
        if (left_out := self._notices.admit(TOO_MANY_AGENTS)) is not None:
            _log.warning(
                TOO_MANY_AGENTS,
                env=env,
                limit=self._max_agents,
                forgotten=len(surplus),
                next_step="end the episode of each agent that is removed, so that it no longer counts",
                left_out=left_out,
            )

    def _lose(self, agent: Agent, reason: str) -> None:
        """Forgets an agent whose episode has not ended."""
        self._segments.give_up(agent, reason)
        self._segments.leave(agent, self._clock())
        self._forget(agent)

    def _forget(self, agent: Agent) -> None:
        """Returns the pending row of a forgotten agent to the pool."""
        if agent.pending >= 0:
            self._pool.give_back((agent.pending,))
        if agent.in_flight:
            self.in_flight -= 1
        else:
            self._waiting.pop(agent.ticket, None)
