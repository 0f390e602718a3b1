"""Gives agents their behaviors, teams and groups, by patterns of their names."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from rollcast.errors import BadSpec
from rollcast.specs import BehaviorSpec, mismatches

from actor_client.envs.base import MaskArray, Observations
from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.infos import ACTION_MASK
from actor_client.envs.spaces import ActionPlan, ObservationPlan, plan_actions
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.agents import Rule, match

NO_GROUP: Final = 0
MOST_KNOWN: Final = 2**14
"""Most names whose seats are kept."""
_LONGEST_SPACE: Final = 100


@dataclass(frozen=True, slots=True)
class RoleRules:
    """The options that give agents their places; the first pattern that matches an agent's name counts.

    Attributes:
        behaviors: Names of behaviors; none = all agents have one behavior.
        teams: Numbers of teams; 0 for agents that match none.
        groups: Names of groups; no group for agents that match none.
    """

    behaviors: Sequence[Rule] = ()
    teams: Sequence[Rule] = ()
    groups: Sequence[Rule] = ()


@dataclass(frozen=True, eq=False)
class Form:
    """The agents of one behavior id: how their observations are read, and how their actions are made.

    Attributes:
        spec: The declared spec.
        team: Their team.
        observations: Encodes observations.
        actions: Makes actions.
        masks_in_observations: Observations are dictionaries with an entry `action_mask`.
        first: The name of the first agent, for messages.
    """

    spec: BehaviorSpec
    team: int
    observations: ObservationPlan
    actions: ActionPlan
    masks_in_observations: bool
    first: str
    _nothing: Observations = field(default_factory=list)

    @property
    def behavior_id(self) -> str:
        """Name of the behavior with the team."""
        return f"{self.spec.name}?team={self.team}"

    def encode(self, observations: Sequence[Any]) -> Observations:
        """Returns one array per observation, [n, *shape], of n agents; see `ObservationPlan.encode`."""
        if observations:
            return self.observations.encode(observations)
        if not self._nothing:
            self._nothing.extend(np.zeros((0, *each.shape), each.dtype) for each in self.spec.observations)
        return self._nothing

    @property
    def all_allowed(self) -> MaskArray:
        """A mask that allows every choice, uint8 [sum of branches]."""
        return np.ones(self.spec.action.mask_size, np.uint8)


class Seat(NamedTuple):
    """The place of an agent.

    Attributes:
        form: Its behavior id.
        group: Number of its group in the environment; 0 = none.
        spaces: Its observation space and action space.
    """

    form: Form
    group: int
    spaces: tuple[Any, Any]


class AgentRoles:
    """The seats of all agents of a process, by name; agents of the same name have the same seat in all environments.

    Args:
        rules: The user's options.
        behavior: The behavior of all agents if there are no rules for behaviors.
    """

    def __init__(self, rules: RoleRules, behavior: str) -> None:
        self._rules = rules
        self._behavior = behavior
        self._forms: dict[tuple[str, int], Form] = {}
        self._first: dict[str, tuple[Form, tuple[Any, Any]]] = {}
        self._groups: dict[str, tuple[int, Form, str]] = {}
        self._seats: dict[str, Seat] = {}

    def seat(self, environment: Any, agent: str) -> Seat:
        """Returns the seat of an agent.

        Args:
            environment: The agent's environment.
            agent: The agent's name.

        Raises:
            UnsupportedSpace: Its spaces cannot be sent, or differ from those of its behavior.
            ActorError: No pattern matches its name, or its group has agents of another behavior.
        """
        spaces = environment.observation_space(agent), environment.action_space(agent)
        known = self._seats.get(agent)
        if known is not None and known.spaces == spaces:
            return known
        form = self._form(agent, *spaces)
        if len(self._seats) >= MOST_KNOWN:  # an environment may give each agent a new name
            self._seats.clear()
        seat = self._seats[agent] = Seat(form, self._group(agent, form), spaces)
        return seat

    def _form(self, agent: str, observation_space: Any, action_space: Any) -> Form:
        name, team = self._name(agent), int(match(self._rules.teams, agent) or 0)
        form = _form(name, team, agent, observation_space, action_space, grouped=bool(self._rules.groups))
        other, spaces = self._first.setdefault(name, (form, (observation_space, action_space)))
        if mismatches(other.spec, form.spec) or _starts(other) != _starts(form):
            which = int(bool(spaces[0] == observation_space))
            raise UnsupportedSpace(
                f"agents {other.first} and {agent} have different {('observation', 'action')[which]} spaces, "
                f"{_shown(spaces[which])} and {_shown((observation_space, action_space)[which])}, and agents of one "
                f"behavior need equal ones; give them behaviors by their names, as in --behavior "
                f"'{_stem(other.first)}=A' --behavior '{_stem(agent)}=B'"
            )
        return self._forms.setdefault((name, team), form)

    def _name(self, agent: str) -> str:
        if not self._rules.behaviors:
            return self._behavior
        name = match(self._rules.behaviors, agent)
        if name is None:
            near = difflib.get_close_matches(str(agent), [rule.pattern for rule in self._rules.behaviors], n=1)
            hint = f"; the nearest pattern is {near[0]}" if near else ""
            raise ActorError(
                ExitCode.USAGE, f"no --behavior matches the agent {agent}{hint}; add --behavior '{_stem(agent)}=NAME'"
            )
        return name

    def _group(self, agent: str, form: Form) -> int:
        name = match(self._rules.groups, agent)
        if name is None:
            return NO_GROUP
        number, other, first = self._groups.setdefault(name, (len(self._groups) + 1, form, agent))
        if other is not form:
            raise ActorError(
                ExitCode.USAGE,
                f"group {name} has agents of two behaviors or teams: {first} of {other.behavior_id} and {agent} of "
                f"{form.behavior_id}; give each its own group, as in --group '{first}=1' --group '{agent}=2'",
            )
        return number


def unmatched(rules: RoleRules, agents: Sequence[str]) -> list[str]:
    """Returns the options whose pattern matches none of an environment's agents, as they are typed."""
    options = {"--behavior": rules.behaviors, "--team": rules.teams, "--group": rules.groups}
    return [
        f"{option} '{rule.pattern}={rule.value}'"
        for option, given in options.items()
        for rule in given
        if not any(match([rule], agent) is not None for agent in agents)
    ]


def _form(name: str, team: int, agent: str, observation_space: Any, action_space: Any, *, grouped: bool) -> Form:
    """Returns the form of an agent.

    Raises:
        UnsupportedSpace: Its spaces cannot be sent.
    """
    from gymnasium import spaces  # noqa: PLC0415 - environments are made after the command line is read

    masked = isinstance(observation_space, spaces.Dict) and ACTION_MASK in observation_space.spaces
    if masked:
        parts = {key: part for key, part in observation_space.spaces.items() if key != ACTION_MASK}
        observation_space = spaces.Dict(parts)
    try:
        observations, actions = ObservationPlan(observation_space), plan_actions(action_space)
        spec = BehaviorSpec(name, observations.specs, actions.spec, grouped)
        BehaviorSpec.from_message(spec.to_message())
    except UnsupportedSpace as error:
        raise UnsupportedSpace(f"agent {agent}: {error.message}") from None
    except BadSpec as error:
        raise UnsupportedSpace(f"agent {agent} cannot be declared: {error}") from error
    return Form(spec, team, observations, actions, masked, agent)


def _starts(form: Form) -> list[Any]:
    """Returns the numbers from which categories and choices are counted."""
    starts = [*(leaf.start for leaf in form.observations.leaves), form.actions.start]
    return [None if start is None else start.tolist() for start in starts]


def _shown(space: Any) -> str:
    """Returns a space in words, shortened."""
    text = " ".join(str(space).split())
    return text if len(text) <= _LONGEST_SPACE else f"{text[: _LONGEST_SPACE - 3]}..."


def _stem(agent: str) -> str:
    """Returns a pattern for agents with the same name and another number: `agent_*` for `agent_0`."""
    name = str(agent)
    stem = name.rstrip("0123456789")
    return f"{stem}*" if stem and stem != name else name
