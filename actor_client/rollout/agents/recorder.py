"""Stops 1 and 2 of a step where agents step when they like: what they see and do becomes rows, segments, chunks."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd, StatAggregation
from rollcast.specs import BehaviorSpec

from actor_client.logs import Notices
from actor_client.policy.actions import NO_MEMORY, Actions, MemoryForm
from actor_client.rollout.agents.agent import Agent, unique_number
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents
from actor_client.rollout.agents.outbox import Outbox
from actor_client.rollout.agents.rows import RowPool
from actor_client.rollout.agents.segmenter import Segmenter
from actor_client.rollout.link import BehaviorLink

MAX_AGENTS: Final = 2**14
"""Of one environment. Beyond it, those that came first and do not show up are taken for gone without a word."""
NOT_FINITE: Final = "not_finite"
GENERATION: Final = "generation"
TOO_MANY_AGENTS: Final = "too_many_agents"

Index = NDArray[np.int64]

_log = structlog.get_logger(__name__)


class AgentRecorder:
    """Records the agents of one behavior id, in any number of environments, each of which steps at its own pace.

        recorder.finish(env, ended)               # first what ended,
        slots = recorder.observe(env, asking)     # then what asks
        recorder.act(slots, policy.act(...))      # the answer, of several environments at once if it must be

    A row is complete when its agent shows up again with the reward; then it counts as produced. A segment ends with
    its episode, at the time horizon, where a longer one would not fit a chunk, before its oldest row passes the policy
    lag, at a swap if the link says so, and when `cut` is called.

    Args:
        spec: What is recorded.
        link: Where chunks go, and the limits.
        clock: Monotonic seconds.
        max_agents: See `MAX_AGENTS`.

    Attributes:
        most_agents: As many agents as there ever were at once: what the learner's credit should go by.
        in_flight: Agents that were answered and have not shown up again: so many rows will be produced.
        unusable_episodes: Finished episodes that were not reported, because their returns are not known or beyond
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
        self._notices = Notices()
        self._max_agents = max_agents
        self.most_agents = 0
        self.in_flight = 0
        self.unusable_episodes = 0

    @property
    def horizon(self) -> int:
        """Most rows of a segment: the time horizon, or what fits a chunk."""
        return self._outbox.horizon

    @property
    def agents(self) -> int:
        """Agents whose episodes run."""
        return sum(map(len, self._agents.values()))

    @property
    def open_steps(self) -> int:
        """Rows that are complete and in no chunk yet."""
        return self._segments.rows + self._outbox.rows

    def observe(self, env: int, batch: AskingAgents, *, settings_revision: int = 0) -> Index:
        """Completes the rows of the agents' last actions and begins new ones; sends what is due.

        An agent that asks again without having been answered is taken by its last question.

        Args:
            env: Number of the environment.
            batch: Who asks, n agents.
            settings_revision: Of the environment's settings, for episodes that begin here.

        Returns:
            What `act` must be called with, int64 [n].
        """
        now = self._clock()
        ids = batch.ids.tolist()
        if not ids:
            return np.zeros(0, np.int64)
        first_ticket = self._next_ticket
        self._next_ticket += len(ids)
        known = self._agents.setdefault(env, {})
        rows = self._pool.take(len(ids))
        self._pool.observe(rows, batch.observations, batch.masks)
        asking = []
        for identity in ids:
            agent = known.get(identity)
            if agent is None:
                self._episodes += 1
                agent = Agent(env, unique_number(env, identity), self._episodes, settings_revision)
                known[identity] = agent
            asking.append(agent)
        self.in_flight -= self._segments.complete(asking, batch, range(len(ids)))
        for ticket, (agent, row) in enumerate(zip(asking, rows.tolist(), strict=True), start=first_ticket):
            if self._waiting.pop(agent.ticket, None) is not None:
                self._pool.give_back((agent.pending,))
                agent.void = ""
            agent.pending, agent.ticket = row, ticket
            self._waiting[ticket] = agent
        if batch.faulty is not None:
            self._drop([agent for agent, bad in zip(asking, batch.faulty, strict=True) if bad], NOT_FINITE)
        self._segments.regroup(asking, batch.group_ids.tolist(), rows, first_ticket, now)
        self._segments.cut_due(asking, now)
        agents = self.agents
        self.most_agents = max(self.most_agents, agents)
        self._segments.ease(agents, self.most_agents, now)
        if len(known) > self._max_agents:
            self._forget_oldest(env, set(ids))
        if self._outbox.is_due(now):
            self.flush()
        return np.arange(first_ticket, self._next_ticket)

    def act(self, slots: Index, actions: Actions) -> None:
        """The agents were told to do this.

        Agents that were forgotten meanwhile are left out.

        Args:
            slots: From `observe`, in any order, int64 [n].
            actions: One row an agent.
        """
        tickets = slots.tolist()
        agents = [agent for ticket in tickets if (agent := self._waiting.get(ticket)) is not None]
        if len(agents) < len(tickets):
            actions = actions.part([place for place, ticket in enumerate(tickets) if ticket in self._waiting])
        if not agents:
            return
        version = self._version
        self._pool.act([agent.pending for agent in agents], actions, version, self._clock())
        for agent in agents:
            del self._waiting[agent.ticket]
            agent.answered(version)
        self.in_flight += len(agents)

    def finish(self, env: int, batch: EndedAgents) -> None:
        """Completes the last rows of agents and ends their episodes; agents that are not known are left out.

        Args:
            env: Number of the environment.
            batch: Whose episodes ended.
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
        self._pool.give_back(self._segments.end(ended, cut_off, [finals[place] for place in places], now))
        self._segments.ease(self.agents, self.most_agents, now)
        for agent, is_cut_off in zip(ended, cut_off, strict=True):
            self._record(agent, SegmentEnd.TRUNCATED if is_cut_off else SegmentEnd.TERMINATED, now)
            self._forget(agent)
        self._pool.give_back([finals[place] for place in set(range(len(ids))) - set(places)])
        if self._outbox.is_due(now):
            self.flush()

    def _record(self, agent: Agent, end: SegmentEnd, now: float) -> None:
        """Reports an episode that has ended, unless it has no steps or its return is not known."""
        if not agent.steps:
            return
        record = agent.record(end)
        if record is not None:
            self._outbox.record(record, now)
            return
        self.unusable_episodes += 1
        if (left_out := self._notices.due("episode_not_finite")) is not None:
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
            reason: Why their open rows are given up, a word of the books.
        """
        for agent in self._agents.pop(env, {}).values():
            self._lose(agent, reason)

    def swap(self, generation: int, version: int, memory: MemoryForm = NO_MEMORY) -> None:
        """Another policy answers from now on; sends what is closed.

        Rows of another generation are of no use any more: they are discarded, and so are those in flight as soon as
        they are complete. Its memory may have another form.

        Args:
            generation: Of the new policy.
            version: Of the new policy.
            memory: What the new policy remembers of an agent.
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
        """Gives up all rows that are in no chunk yet, and the records of the episodes they end; running ones go on.

        The link's limits are read again: there is another session or another learner.

        Args:
            reason: A word of the books.
        """
        for agent in self._all():
            self._segments.give_up(agent, reason)
        self._segments.release_held(self._clock())
        rows = self._outbox.discard()
        if rows:
            self._link.books.discard(reason, rows)
        self._outbox.prepare()

    def cut(self) -> None:
        """Ends all open segments and sends everything: the actor is about to stop."""
        self._segments.cut(self._all(), self._clock())
        self.flush()

    def flush(self) -> None:
        """Sends all closed segments, the episodes that ended with them, and statistics."""
        self._outbox.flush(self._generation, self.agents, self._clock())

    def poll(self) -> None:
        """Sends what is old enough; to be called now and then while nobody shows up."""
        if self._outbox.is_due(self._clock()):
            self.flush()

    def add_stats(self, env: int, records: Iterable[tuple[str, float, StatAggregation]]) -> None:
        """Sends statistics with the next chunk.

        Args:
            env: Number of the environment that reported them.
            records: Key, value, and how values of the key are put together.
        """
        self._outbox.stats.add(env, records, self._clock())

    def _all(self) -> Iterator[Agent]:
        return chain.from_iterable(known.values() for known in self._agents.values())

    def _drop(self, agents: Sequence[Agent], reason: str) -> None:
        """Gives up open segments and pending rows; the returns are not known any more."""
        for agent in agents:
            self._segments.give_up(agent, reason)
            agent.void = reason
            agent.unusable = True

    def _forget_oldest(self, env: int, present: Collection[int]) -> None:
        """Forgets agents that are not present until there are no more than allowed, or none is left."""
        known = self._agents[env]
        surplus = [identity for identity in known if identity not in present][: len(known) - self._max_agents]
        for identity in surplus:
            self._lose(known.pop(identity), TOO_MANY_AGENTS)
        if (left_out := self._notices.due(TOO_MANY_AGENTS)) is not None:
            _log.warning(
                TOO_MANY_AGENTS,
                env=env,
                limit=self._max_agents,
                forgotten=len(surplus),
                next_step="end the episodes of agents that are removed, so that they do not count any more",
                left_out=left_out,
            )

    def _lose(self, agent: Agent, reason: str) -> None:
        """Forgets an agent whose episode did not end."""
        self._segments.give_up(agent, reason)
        self._segments.leave(agent, self._clock())
        self._forget(agent)

    def _forget(self, agent: Agent) -> None:
        """Gives back the pending row of an agent that is gone."""
        if agent.pending >= 0:
            self._pool.give_back((agent.pending,))
        if agent.in_flight:
            self.in_flight -= 1
        else:
            self._waiting.pop(agent.ticket, None)
