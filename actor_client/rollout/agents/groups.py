"""Groups of agents that share rewards: who is in which, and when their episodes are over.

Mates are cut together, and what they did at the same time travels in one chunk where it fits. So a segment of an agent
whose episode ends early is held until its mates' are cut, or the group's episode is over.
"""

from collections.abc import Iterable, Iterator, Sequence

from rollcast.enums import GroupEnd

from actor_client.rollout.agents.agent import Agent, Group


class Groups:
    """All groups whose episodes run."""

    __slots__ = ("_groups", "_started")

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
