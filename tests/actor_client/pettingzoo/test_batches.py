"""Tests how reports become batches: masks, groups, numbers, and values that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rollcast.chunks import GameResult

from actor_client.pettingzoo.agent_roles import AgentRoles
from actor_client.pettingzoo.agents import AgentReport, ParallelAgents, WrongReport, agents_of
from actor_client.pettingzoo.batches import GroupReward, Part, Reader, _results
from tests.actor_client.pettingzoo import toys
from tests.actor_client.pettingzoo.test_cast import rules
from tests.actor_client.pettingzoo.toys import TERMINATED


def play(environment: Any, share: GroupReward = "own", groups: str = "") -> list[list[Part]]:
    """Plays one episode, and returns its messages."""
    agents = agents_of(environment)
    assert agents is not None
    reader = Reader(AgentRoles(rules(groups=groups), "Run"), environment, share)
    report = agents.reset(1, None)
    reader.begin()
    reader.take(report)
    messages = [reader.parts()]
    while report.asking:
        report = agents.step({each.agent: 0 for each in report.asking})
        reader.take(report)
        messages.append(reader.parts())
    return messages


def rewards(messages: list[list[Part]]) -> dict[int, list[tuple[float, float]]]:
    """Returns own and group rewards of each agent, the first ones left out."""
    found: dict[int, list[tuple[float, float]]] = {}
    for parts in messages[1:]:
        for part in parts:
            for batch in (part.ended, part.asking):
                for agent, own, shared in zip(batch.ids, batch.rewards, batch.group_rewards, strict=True):
                    found.setdefault(int(agent), []).append((float(own), float(shared)))
    return found


def test_a_message_has_agents_in_order() -> None:
    """Ids are numbers of agents, rewards and observations are in their order."""
    (part,) = play(toys.Field())[1]
    assert part.names == ["a", "b"]
    assert part.asking.ids.tolist() == [0, 1]
    assert part.asking.rewards.tolist() == [1.0, 10.0]
    assert part.asking.observations[0].tolist() == [[1.0, ord("a")], [1.0, ord("b")]]
    assert part.asking.masks is None
    assert not len(part.ended.ids)


def test_the_end_says_which_agents_were_cut_off() -> None:
    """Only a truncated agent is interrupted; its infos become statistics."""
    (part,) = play(toys.Field())[-1]
    assert part.ended.ids.tolist() == [0, 2]
    assert part.ended.interrupted.tolist() == [True, False]
    assert [(name, value) for name, value, _ in part.stats] == [("Environment/luck", 4.0)] * 2
    assert part.results is None


def test_an_info_may_say_who_won() -> None:
    """The sign of a number `result` is the result; an agent without one has an unknown result."""
    reports = [
        AgentReport(agent, None, 0.0, info)
        for agent, info in (("a", {"result": 2.5}), ("b", {"result": -1}), ("c", {}), ("d", {"result": 0.0}))
    ]
    found = _results(reports)
    assert found is not None
    assert found.tolist() == [GameResult.WON, GameResult.LOST, GameResult.UNKNOWN, GameResult.DRAWN]


def test_a_group_shares_its_rewards_if_asked() -> None:
    """Each living agent gets the sum or the mean of its group's rewards; those of the dead are not lost; the dead get no more."""
    assert rewards(play(toys.Field(), groups="all"))[1] == [(10.0, 0.0), (20.0, 0.0)]
    assert rewards(play(toys.Field(), "sum", "all")) == {
        0: [(0.0, 11.0), (0.0, 22.0), (0.0, 3.0), (0.0, 404.0)],
        1: [(0.0, 11.0), (0.0, 22.0)],
        2: [(0.0, 3.0), (0.0, 404.0)],
    }
    found = rewards(play(toys.Field(), "mean", "all"))
    assert found[0][:2] == found[1] == [(0.0, 5.5), (0.0, 11.0)]


def test_agents_in_turns_get_every_reward_of_their_group_once() -> None:
    """In turns, a group's rewards add up until its agent is reported again, up to the last one of the episode."""
    script = [{"x": (1.0, ""), "o": (2.0, "")}, {"x": (4.0, TERMINATED), "o": (8.0, TERMINATED)}]
    found = rewards(play(toys.duel(script=script), "sum", "all"))
    assert {agent: sum(shared for _, shared in each) for agent, each in found.items()} == {0: 15.0, 1: 15.0}


def test_masks_are_those_of_the_asking_agents() -> None:
    """A mask inside the observation forbids choices, and is not encoded."""
    messages = play(toys.duel())
    masks = [part.asking.masks.tolist() for (part,) in messages[:-1] if part.asking.masks is not None]
    assert masks == [[[0, 1, 1]], [[1, 0, 1]], [[1, 1, 0]]]


def test_agents_with_ever_new_names_are_forgotten() -> None:
    """Each new name gets a number of its own, and names of agents that have ended take no memory."""
    script = [{f"n{step}": (0.0, TERMINATED), f"n{step + 1}": (0.0, "")} for step in range(50)]
    environment = toys.Field(script, first=("n0",))
    environment.possible_agents = []
    reader = Reader(AgentRoles(rules(), "Run"), environment, "own")
    agents = ParallelAgents(environment)
    report = agents.reset(1, None)
    numbers = []
    for _ in range(50):
        reader.take(report)
        (part,) = reader.parts()
        numbers += part.asking.ids.tolist()
        report = agents.step({each.agent: 0 for each in report.asking})
    assert numbers == list(range(50))
    assert len(reader._numbers) == len(reader._seats) == 1


@pytest.mark.parametrize("reward", [float("nan"), 1e300])
def test_values_that_are_not_finite_are_marked(reward: float) -> None:
    """NaN and what float32 cannot hold become 0, and the agent is marked."""
    script = [{"a": (reward, ""), "b": (1.0, "")}, {"a": (0.0, TERMINATED), "b": (0.0, TERMINATED)}]
    (part,) = play(toys.Field(script))[1]
    assert part.asking.rewards.tolist() == [0.0, 1.0]
    assert part.asking.faulty is not None
    assert part.asking.faulty.tolist() == [True, False]


def test_observations_are_copied() -> None:
    """An environment may reuse the arrays that it returns."""
    seen = np.zeros(2, np.float32)

    class Reusing(toys.Field):
        def _sees(self, agent: str) -> Any:
            seen[:] = super()._sees(agent)
            return seen

    environment = Reusing()
    agents = ParallelAgents(environment)
    reader = Reader(AgentRoles(rules(), "Run"), environment, "own")
    reader.take(agents.reset(1, None))
    (part,) = reader.parts()
    seen[:] = 77.0
    assert 77.0 not in part.asking.observations[0]


class Masked(toys.Field):
    """Has a mask in the info of agent b."""

    def __init__(self, mask: Any) -> None:
        super().__init__()
        self._mask = mask

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the mask."""
        observations, infos = super().reset(*args, **kwargs)
        return observations, infos | {"b": {"action_mask": self._mask}}


def test_masks_of_infos() -> None:
    """A mask in the info of one agent allows the others everything; one that fits no action is named with its agent."""
    (part,) = play(Masked([False, True]))[0]
    assert part.asking.masks is not None
    assert part.asking.masks.tolist() == [[1, 1], [0, 1]]
    assert part.asking.group_ids.tolist() == [0, 0]
    for mask, message in (([0, 0], "agent b: .* allows no choice"), ([1, 1, 1], "agent b: .*has 3 entries")):
        with pytest.raises(WrongReport, match=message):
            play(Masked(mask))
