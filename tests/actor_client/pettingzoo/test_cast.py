"""Tests how agents get behaviors, teams and groups."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from actor_client.envs.errors import UnsupportedSpace
from actor_client.exits import ActorError, ExitCode
from actor_client.pettingzoo.agent_roles import AgentRoles, RoleRules, unmatched
from actor_client.settings.agents import split_rule
from tests.actor_client.pettingzoo import toys


def rules(behaviors: str = "", teams: str = "", groups: str = "") -> RoleRules:
    """Returns rules from texts separated by spaces."""
    return RoleRules(*(tuple(map(split_rule, each.split())) for each in (behaviors, teams, groups)))


def places(roles: AgentRoles, environment: Any = None) -> dict[str, tuple[str, int]]:
    """Returns the behavior id and the group of each agent."""
    environment = environment or toys.Field()
    seats = {agent: roles.seat(environment, agent) for agent in environment.possible_agents}
    return {agent: (seat.form.behavior_id, seat.group) for agent, seat in seats.items()}


def test_agents_with_equal_spaces_share_a_behavior() -> None:
    """Without rules all agents have the run's behavior, no team and no group."""
    assert places(AgentRoles(RoleRules(), "Run")) == dict.fromkeys("abc", ("Run?team=0", 0))


def test_the_first_pattern_that_matches_counts() -> None:
    """Behaviors, teams and groups come from patterns; a value without a pattern is for all."""
    roles = AgentRoles(rules("[ab]=Pair Rest", "b=3 *=1", "[ab]=left c=right"), "unused")
    with pytest.raises(ActorError, match=r"group left has agents of two behaviors or teams: a of .*team=1 and b of"):
        places(roles)
    roles = AgentRoles(rules("[ab]=Pair Rest", "c=2", "[ab]=left c=right"), "unused")
    assert places(roles) == {"a": ("Pair?team=0", 1), "b": ("Pair?team=0", 1), "c": ("Rest?team=2", 2)}


def test_an_agent_without_a_pattern_is_named() -> None:
    """The error has the agent, the nearest pattern and what to write."""
    with pytest.raises(ActorError, match=r"no --behavior matches the agent c.*add --behavior 'c=NAME'") as caught:
        places(AgentRoles(rules("a=A b=B"), "unused"))
    assert caught.value.exit_code is ExitCode.USAGE


def test_patterns_without_an_agent_are_found() -> None:
    """A pattern that matches no agent is found, and one that an earlier pattern hides is not."""
    found = unmatched(rules("a=A *=B c=C", "A=1 b=2", "zz*=team"), toys.Field().possible_agents)
    assert found == ["--team 'A=1'", "--group 'zz*=team'"]


def test_different_spaces_need_behaviors_of_their_own() -> None:
    """The error names both agents, the difference, and patterns that part them."""
    environment = toys.Field([], first=("red_0", "blue_0"), sizes={"red_0": 5})
    expected = (
        r"blue_0 and red_0 have different observation spaces, Box.* and Box.*--behavior 'blue_\*=A' .* 'red_\*=B'"
    )
    with pytest.raises(UnsupportedSpace, match=expected):
        places(AgentRoles(RoleRules(), "Run"), environment)
    roles = AgentRoles(rules("red_*=Red *=Others"), "unused")
    assert set(places(roles, environment).values()) == {("Red?team=0", 0), ("Others?team=0", 0)}


def test_choices_counted_from_other_numbers_are_different() -> None:
    """Spaces that look equal on the wire, and whose actions are not, are not mixed."""

    class Shifted(toys.Field):
        def action_space(self, agent: str) -> spaces.Space[Any]:
            """Returns choices that the second agent counts from 1."""
            return spaces.Discrete(2, start=int(agent == "b"))

    with pytest.raises(UnsupportedSpace, match=r"different action spaces, Discrete\(2\) and Discrete\(2, start=1\)"):
        places(AgentRoles(RoleRules(), "Run"), Shifted())


def test_the_mask_is_no_observation() -> None:
    """The entry `action_mask` of an observation is left out of the spec."""
    form = AgentRoles(RoleRules(), "Run").seat(toys.duel(), "x").form
    assert [each.name for each in form.spec.observations] == ["observation"]
    assert form.masks_in_observations
