"""Rows of agents become segments: grown row by row, and ended alone or with those of group mates."""

from collections.abc import Iterable, Iterator, Sequence

from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.agents.agent import Agent, Group
from actor_client.rollout.agents.interface import AgentBatch
from actor_client.rollout.agents.outbox import Outbox
from actor_client.rollout.agents.rows import ClosedSegment, Index, RowPool
from actor_client.rollout.link import BehaviorLink


class Groups:
    """All groups whose episodes run."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], Group] = {}
        self._started = 0

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def join(self, agent: Agent, identity: int) -> None:
        """An agent enters a group of its environment, and begins its episode if nobody is in it; 0 = no group."""
        if not identity:
            return
        group = self._groups.get((agent.env, identity))
        if group is None:
            self._started += 1
            group = self._groups[agent.env, identity] = Group(agent.env, identity, self._started)
        group.members[agent] = None
        agent.group = group

    def leave(self, agent: Agent) -> Group | None:
        """An agent is in no group any more; returns the one that is over thereby, if it is."""
        group, agent.group = agent.group, None
        if group is None:
            return None
        group.members.pop(agent, None)
        if group.members:
            return None
        key = group.env, group.identity
        if self._groups.get(key) is group:
            del self._groups[key]
        return group

    def end(self, agents: Sequence[Agent], interrupted: Sequence[bool]) -> dict[Group, GroupEnd]:
        """Episodes of agents end, who are left in their groups for the time being.

        Args:
            agents: Whose episodes end in one message.
            interrupted: Whether each was ended from outside.

        Returns:
            How the groups of the agents stand.
        """
        interrupted_groups: dict[Group, bool] = {}
        for agent, cut_off in zip(agents, interrupted, strict=True):
            group = agent.group
            if group is not None:
                group.members.pop(agent, None)
                interrupted_groups[group] = interrupted_groups.get(group, False) or cut_off
        return {group: _stand(group, cut_off) for group, cut_off in interrupted_groups.items()}

    @staticmethod
    def with_mates(agents: Iterable[Agent]) -> list[Agent]:
        """Returns the agents and all who are in groups with them."""
        found: dict[Agent, None] = {}
        for agent in agents:
            found.update({agent: None} if agent.group is None else agent.group.members)
        return list(found)


def _stand(group: Group, interrupted: bool) -> GroupEnd:
    if group.members:
        return GroupEnd.CONTINUES
    return GroupEnd.TRUNCATED if interrupted else GroupEnd.TERMINATED


class Segmenter:
    """The open segments of all agents.

    Args:
        link: Whose books are kept.
        pool: Where the rows are.
        outbox: Where closed segments go.

    Attributes:
        rows: Complete rows in open segments, and in closed ones that are held for those of group mates.
        held_rows: Those in closed ones.
        cut_through: Segments whose oldest row is of this version or an older one are ended.
    """

    def __init__(self, link: BehaviorLink, pool: RowPool, outbox: Outbox) -> None:
        self._link = link
        self._pool = pool
        self._outbox = outbox
        self._groups = Groups()
        self.grouped = False
        self.rows = 0
        self.held_rows = 0
        self.cut_through = -1

    def complete(self, agents: Sequence[Agent], batch: AgentBatch, places: Sequence[int]) -> int:
        """Completes the rows of those agents that are in flight.

        Args:
            agents: Who shows up.
            batch: With which rewards.
            places: Of the agents in the batch.

        Returns:
            How many rows are complete, void ones included: they count as produced, and as discarded.
        """
        rewards, group_rewards = batch.rewards.tolist(), batch.group_rewards.tolist()
        rows, done, voids = [], [], []
        for agent, place in zip(agents, places, strict=True):
            if not agent.in_flight:
                continue
            row, void = agent.pending, agent.complete(rewards[place], group_rewards[place])
            agent.pending = -1
            rows.append(row)
            done.append(place)
            if void:
                voids.append((row, void))
        if not rows:
            return 0
        self._pool.reward(rows, batch.rewards[done], batch.group_rewards[done])
        self.rows += len(rows) - len(voids)
        self._link.books.produced(len(rows))
        for row, void in voids:
            self._pool.give_back((row,))
            self._link.books.discard(void, 1)
        return len(rows)

    def regroup(
        self, agents: Sequence[Agent], identities: Sequence[int], rows: Index, message: int, now: float
    ) -> None:
        """Puts agents into the groups that they are in by now, and aligns their pending rows.

        Who moves from one group to another is cut before.

        Args:
            agents: Who asks, n agents.
            identities: Of their groups; 0 = none.
            rows: The pending ones, [n].
            message: A number that grows with each message.
            now: Monotonic seconds.
        """
        self.grouped = self.grouped or any(identities)
        if not self.grouped:
            return
        moving = [
            (agent, identity)
            for agent, identity in zip(agents, identities, strict=True)
            if (0 if agent.group is None else agent.group.identity) != identity
        ]
        if moving:
            self.cut([agent for agent, _ in moving], now)
            for agent, identity in moving:
                self.leave(agent, now)
                self._groups.join(agent, identity)
        self._pool.group_steps[rows] = [0 if agent.group is None else agent.group.step(message) for agent in agents]

    def cut_due(self, agents: Iterable[Agent], now: float) -> None:
        """Ends segments that are long or old enough."""
        horizon, through = self._outbox.horizon, self.cut_through
        due = [a for a in agents if a.rows and (len(a.rows) >= horizon or a.oldest <= through)]
        if due:
            self.cut(due, now)

    def cut_old(self, agents: Iterable[Agent], now: float) -> None:
        """Ends segments that could not be continued without their oldest rows passing the lag.

        Segments that are held are as old as what waits with them.
        """
        through = self.cut_through
        old = [agent for agent in agents if agent.rows and agent.oldest <= through]
        for group in self._groups:
            if any(segment.oldest_version <= through for segment in group.held):
                old.extend(group.members)
        self.cut(old, now)

    def cut(self, agents: Iterable[Agent], now: float) -> None:
        """Ends open segments before the pending rows, whose observations are the final ones; those of mates, too."""
        agents = self._groups.with_mates(agents)
        bundles: dict[Group | Agent, list[ClosedSegment]] = {}
        for agent in agents:
            group = agent.group
            if (group or agent) not in bundles:
                bundles[group or agent] = [] if group is None else self._take_held(group)
        agents = [agent for agent in agents if agent.rows]
        if agents:
            finals = self._pool.take(len(agents))
            self._pool.copy_seen([agent.pending for agent in agents], finals)
            for agent, final in zip(agents, finals.tolist(), strict=True):
                bundles[agent.group or agent].append(agent.close(final, SegmentEnd.CUT))
        for bundle in bundles.values():
            self._release(bundle, now)

    def ease(self, agents: int, most_agents: int, now: float) -> None:
        """Cuts groups of which segments are held if more rows are open than the learner's credit can count on.

        Credit always suffices for `time_horizon` rows of each agent that was declared. If held segments of agents that
        are gone came on top without a limit, a mate that seldom asks could use it up, and nobody would be answered.

        Args:
            agents: Whose episodes run; each has a pending row, too.
            most_agents: As many as there ever were.
            now: Monotonic seconds.
        """
        if self.held_rows and self.rows + agents > most_agents * self._outbox.horizon:
            self.cut([agent for group in self._groups if group.held for agent in group.members], now)

    def end(self, agents: Sequence[Agent], interrupted: Sequence[bool], finals: Sequence[int], now: float) -> list[int]:
        """Ends the segments of agents with their episodes; those of who has mates left are held.

        Args:
            agents: Whose episodes end in one message.
            interrupted: Whether each was ended from outside.
            finals: Rows of the pool that hold what was seen last.
            now: Monotonic seconds.

        Returns:
            The finals that are of no use, because their agents have no open segments.
        """
        stands = self._groups.end(agents, interrupted)
        unused = []
        for agent, cut_off, final in zip(agents, interrupted, finals, strict=True):
            group = agent.group
            if not agent.rows:
                unused.append(final)
                continue
            segment = agent.close(
                final,
                SegmentEnd.TRUNCATED if cut_off else SegmentEnd.TERMINATED,
                GroupEnd.CONTINUES if group is None else stands[group],
            )
            if group is None:
                self._release([segment], now)
            else:
                group.held.append(segment)
                self.held_rows += len(segment.rows)
        for agent in agents:
            self.leave(agent, now)
        return unused

    def leave(self, agent: Agent, now: float) -> None:
        """Takes an agent out of its group; what was held for it is released if it was the last one."""
        over = self._groups.leave(agent)
        if over is not None:
            self._release(self._take_held(over), now)

    def give_up(self, agent: Agent, reason: str) -> None:
        """Gives up the open segment of an agent.

        Args:
            agent: Whose.
            reason: A word of the books.
        """
        rows, agent.rows = agent.rows, []
        if rows:
            self._pool.give_back(rows)
            self.rows -= len(rows)
            self._link.books.discard(reason, len(rows))

    def release_held(self, now: float) -> None:
        """Lets go what is held for mates."""
        for group in self._groups:
            self._release(self._take_held(group), now)

    def _take_held(self, group: Group) -> list[ClosedSegment]:
        held, group.held = group.held, []
        self.held_rows -= sum(len(segment.rows) for segment in held)
        return held

    def _release(self, bundle: Sequence[ClosedSegment], now: float) -> None:
        """Hands over segments that should share a chunk."""
        if bundle:
            self.rows -= sum(len(segment.rows) for segment in bundle)
            self._outbox.add(bundle, now)
