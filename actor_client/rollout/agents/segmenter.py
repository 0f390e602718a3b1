"""Turns rows of agents into segments: extends them row by row, and ends them alone or with the segments of mates."""

from collections.abc import Iterable, Iterator, Sequence

from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.agents.agent import Agent, Group
from actor_client.rollout.agents.interface import AgentBatch
from actor_client.rollout.agents.outbox import Outbox
from actor_client.rollout.agents.rows import ClosedSegment, Index, RowPool
from actor_client.rollout.link import BehaviorLink


class Groups:
    """All groups with running episodes."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], Group] = {}
        self._started = 0

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def join(self, agent: Agent, identity: int) -> None:
        """Adds an agent to a group of its environment (0 = no group); the episode of an empty group begins."""
        if not identity:
            return
        group = self._groups.get((agent.env, identity))
        if group is None:
            self._started += 1
            group = self._groups[agent.env, identity] = Group(agent.env, identity, self._started)
        group.members[agent] = None
        agent.group = group

    def leave(self, agent: Agent) -> Group | None:
        """Removes an agent from its group; returns the group if the group's episode ends."""
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

    def end(self, agents: Sequence[Agent], interrupted: Sequence[bool]) -> None:
        """Marks the ends of agents' episodes, and of the groups' whose last members these are.

        The agents keep their groups for now.

        Args:
            agents: Agents whose episodes end in one message.
            interrupted: Whether each episode was ended from outside.
        """
        interrupted_groups: dict[Group, bool] = {}
        for agent, cut_off in zip(agents, interrupted, strict=True):
            group = agent.group
            if group is not None:
                group.members.pop(agent, None)
                interrupted_groups[group] = interrupted_groups.get(group, False) or cut_off
        for group, cut_off in interrupted_groups.items():
            if not group.members:
                group.end = GroupEnd.TRUNCATED if cut_off else GroupEnd.TERMINATED

    @staticmethod
    def with_mates(agents: Iterable[Agent]) -> list[Agent]:
        """Returns the agents and all their group mates."""
        found: dict[Agent, None] = {}
        for agent in agents:
            found.update({agent: None} if agent.group is None else agent.group.members)
        return list(found)


class Segmenter:
    """The open segments of all agents.

    Args:
        link: The link whose books are kept.
        pool: The pool that holds the rows.
        outbox: Takes closed segments.

    Attributes:
        rows: Complete rows in open segments, and in closed segments that wait for the segments of group mates.
        held_rows: Rows in these closed segments only.
        cut_through: Segments whose oldest row has this version or an older one are ended.
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
        """Completes the rows of the agents that are in flight.

        Args:
            agents: Agents that report.
            batch: Their rewards.
            places: Indices of the agents in the batch.

        Returns:
            The number of completed rows, void ones included, which count as produced and as discarded.
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
        """Moves agents to their present groups, and aligns their pending rows.

        The segment of an agent that changes its group is cut first.

        Args:
            agents: The n asking agents.
            identities: Ids of their groups; 0 = none.
            rows: Their pending rows, [n].
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

    def cut_due(self, agents: Sequence[Agent], now: float) -> None:
        """Ends segments that are long or old enough, and those of groups that would exceed a chunk."""
        horizon, through = self._outbox.horizon, self.cut_through
        due = [a for a in agents if a.rows and (len(a.rows) >= horizon or a.oldest <= through)]
        if self.grouped:
            groups = dict.fromkeys(agent.group for agent in agents)
            due += [agent for group in groups if group is not None and self._is_full(group) for agent in group.members]
        if due:
            self.cut(due, now)

    def _is_full(self, group: Group) -> bool:
        """Returns whether the segments of a group would exceed a chunk if each member had one more row."""
        rows = sum(len(agent.rows) for agent in group.members) + sum(len(segment.rows) for segment in group.held)
        return not self._outbox.fits(rows + len(group.members), len(group.members) + len(group.held))

    def cut_old(self, agents: Iterable[Agent], now: float) -> None:
        """Ends segments whose oldest rows would exceed the lag if they were continued.

        A held segment counts as old as the oldest segment it waits with.
        """
        through = self.cut_through
        old = [agent for agent in agents if agent.rows and agent.oldest <= through]
        for group in self._groups:
            if any(segment.oldest_version <= through for segment in group.held):
                old.extend(group.members)
        self.cut(old, now)

    def cut(self, agents: Iterable[Agent], now: float) -> None:
        """Ends the open segments of agents and their mates; the pending rows' observations become the final ones."""
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
        """Cuts groups with held segments if more rows are open than the learner's credit guarantees.

        Credit always suffices for `time_horizon` rows of each declared agent. Without a limit, held segments of agents
        that have gone could use up the credit while a mate rarely asks, and no agent would be answered.

        Args:
            agents: Agents with running episodes; each also has a pending row.
            most_agents: The largest number of agents so far.
            now: Monotonic seconds.
        """
        if self.held_rows and self.rows + agents > most_agents * self._outbox.horizon:
            self.cut([agent for group in self._groups if group.held for agent in group.members], now)

    def end(self, agents: Sequence[Agent], interrupted: Sequence[bool], finals: Sequence[int], now: float) -> list[int]:
        """Ends agents' segments with their episodes; holds the segments of agents that have mates left.

        Args:
            agents: Agents whose episodes end in one message.
            interrupted: Whether each episode was ended from outside.
            finals: Pool rows with the last observations.
            now: Monotonic seconds.

        Returns:
            The finals that are not needed, because their agents have no open segments.
        """
        self._groups.end(agents, interrupted)
        unused = []
        for agent, cut_off, final in zip(agents, interrupted, finals, strict=True):
            group = agent.group
            if not agent.rows:
                unused.append(final)
                continue
            segment = agent.close(final, SegmentEnd.TRUNCATED if cut_off else SegmentEnd.TERMINATED)
            if group is None:
                self._release([segment], now)
            else:
                group.held.append(segment)
                self.held_rows += len(segment.rows)
        for agent in agents:
            self.leave(agent, now)
        return unused

    def leave(self, agent: Agent, now: float) -> None:
        """Removes an agent from its group; releases the held segments if it was the last one."""
        over = self._groups.leave(agent)
        if over is not None:
            self._release(self._take_held(over), now)

    def give_up(self, agent: Agent, reason: str) -> None:
        """Discards the open segment of an agent.

        Args:
            agent: The agent.
            reason: The reason in the books.
        """
        rows, agent.rows = agent.rows, []
        if rows:
            self._pool.give_back(rows)
            self.rows -= len(rows)
            self._link.books.discard(reason, len(rows))

    def release_held(self, now: float) -> None:
        """Releases the segments that are held for mates."""
        for group in self._groups:
            self._release(self._take_held(group), now)

    def _take_held(self, group: Group) -> list[ClosedSegment]:
        held, group.held = group.held, []
        self.held_rows -= sum(len(segment.rows) for segment in held)
        return held

    def _release(self, bundle: Sequence[ClosedSegment], now: float) -> None:
        """Passes on segments that should share a chunk."""
        if bundle:
            self.rows -= sum(len(segment.rows) for segment in bundle)
            self._outbox.add(bundle, now)
