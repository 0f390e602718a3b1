"""Tests how both interfaces become reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from actor_client.pettingzoo.agents import ParallelAgents, Report, TurnAgents, WrongReport, agents_of
from tests.actor_client.pettingzoo import toys
from tests.actor_client.pettingzoo.toys import IDLE, TERMINATED, TRUNCATED


def asking(report: Report) -> list[tuple[str, float]]:
    """Returns who asks, with rewards."""
    return [(each.agent, each.reward) for each in report.asking]


def ended(report: Report) -> list[tuple[str, float, bool, bool]]:
    """Returns who has ended, with rewards and the kind of end."""
    return [(each.agent, each.reward, each.terminated, each.truncated) for each in report.ended]


def choose(report: Report) -> dict[str, int]:
    """Returns an action of each asking agent."""
    return {each.agent: 1 for each in report.asking}


def play(agents: Any) -> list[Report]:
    """Plays one episode; returns its reports."""
    reports = [agents.reset(7, None)]
    while reports[-1].asking:
        reports.append(agents.step(choose(reports[-1])))
    return reports


def test_agents_die_and_join() -> None:
    """An agent that dies is reported once with its last reward; one that joins asks from then on."""
    reports = play(ParallelAgents(toys.Field()))
    assert [asking(each) for each in reports] == [
        [("a", 0.0), ("b", 0.0)],
        [("a", 1.0), ("b", 10.0)],
        [("a", 2.0)],
        [("a", 3.0), ("c", 0.0)],
        [],
    ]
    assert [ended(each) for each in reports] == [
        [],
        [],
        [("b", 20.0, True, False)],
        [],
        [("a", 4.0, False, True), ("c", 400.0, True, False)],
    ]


def test_only_asking_agents_act() -> None:
    """An agent without an observation does not act, and its rewards add up until it asks again."""
    script = [
        {"a": (1.0, ""), "b": (10.0, IDLE)},
        {"a": (2.0, ""), "b": (20.0, IDLE)},
        {"a": (3.0, ""), "b": (30.0, "")},
        {"a": (4.0, TRUNCATED), "b": (40.0, TRUNCATED)},
    ]
    environment = toys.Field(script)
    reports = play(ParallelAgents(environment))
    assert [sorted(actions) for actions in environment.actions] == [["a", "b"], ["a"], ["a"], ["a", "b"]]
    assert asking(reports[3]) == [("a", 3.0), ("b", 60.0)]


def test_an_agent_may_return_after_its_end() -> None:
    """An agent that ended and appears again asks like a new one."""
    script = [
        {"a": (1.0, ""), "b": (2.0, TERMINATED)},
        {"a": (1.0, ""), "b": (5.0, "")},
        {"a": (1.0, TERMINATED), "b": (7.0, TERMINATED)},
    ]
    reports = play(ParallelAgents(toys.Field(script)))
    assert asking(reports[2]) == [("a", 1.0), ("b", 0.0)]
    assert ended(reports[3])[1] == ("b", 7.0, True, False)


def test_both_players_of_a_turn_game_get_their_last_reward() -> None:
    """Rewards of the last move reach the loser and the winner, with those since their own last moves.

    Actors that stop at the first agent that has ended lose the other's (PettingZoo #355, #1147).
    """
    reports = play(TurnAgents(toys.duel()))
    assert [asking(each) for each in reports] == [[("x", 0.0)], [("o", 0.5)], [("x", 3.0)], []]
    assert ended(reports[-1]) == [("o", 10.25, True, False), ("x", -10.0, True, False)]


class Wrong(toys.Field):
    """Returns what a test wants from its first step."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        self._parts = parts

    def step(self, actions: dict[str, Any]) -> Any:
        """Replaces parts of the result."""
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        result = dict(zip(names, super().step(actions), strict=True)) | self._parts
        self.agents = self._parts.get("agents", self.agents)
        return tuple(result[name] for name in names[: self._parts.get("count", 5)])


SEEN = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"count": 4}, r"step must return observation, reward, .* \(5 values\); got 4"),
        ({"agents": ["a"]}, "agent b is no longer in agents, but was neither terminated nor truncated"),
        ({"observations": {}}, "none of the agents a, b has an observation"),
        ({"terminations": {"a": True}, "observations": {"b": SEEN}}, "agent a ended without an observation"),
        ({"rewards": {"a": "much"}}, "the reward of agent a must be a number; got 'much'"),
        ({"infos": None}, "infos must be a dictionary by agent; got NoneType"),
        ({"infos": {"a": 3}}, "agent a: step must return a dictionary as info; got int"),
    ],
)
def test_a_wrong_result_is_named(parts: dict[str, Any], message: str) -> None:
    """What the interface does not allow is one line with the agent."""
    agents = ParallelAgents(Wrong(**parts))
    report = agents.reset(1, None)
    with pytest.raises(WrongReport, match=message):
        agents.step(choose(report))


def test_an_agent_that_is_never_removed_is_named() -> None:
    """An environment that selects a dead agent for ever is refused instead of followed."""
    script = [{"x": (0.0, TRUNCATED), "o": (0.0, TRUNCATED)}]
    agents = TurnAgents(toys.duel(is_wrapped=False, script=script, keeps_dead=True))
    report = agents.reset(1, None)
    with pytest.raises(WrongReport, match="agent o is selected again after its end"):
        agents.step(choose(report))


def test_the_interface_is_recognized() -> None:
    """Objects of either interface are read; others are none."""
    assert isinstance(agents_of(toys.Field()), ParallelAgents)
    assert isinstance(agents_of(toys.duel()), TurnAgents)
    assert agents_of(object()) is None
