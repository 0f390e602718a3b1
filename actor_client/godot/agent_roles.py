"""What the agents of a game see and do, and the behaviors and teams that the names of their policies give them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.errors import BadSpec
from rollcast.limits import MAX_CATEGORIES, MAX_CONTINUOUS_ACTIONS, MAX_DECODED_CHUNK_BYTES, MAX_OBSERVATIONS, MAX_RANK
from rollcast.specs import ActionSpec, BehaviorSpec, mismatches
from rollcast.text import printable

from actor_client.connection.session import RunInfo
from actor_client.envs.base import Observations
from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.spaces import ObservationPlan
from actor_client.exits import ActorError, ExitCode
from actor_client.godot.messages import GameFault, shown
from actor_client.policy.actions import Actions
from actor_client.running import behavior_of_run
from actor_client.settings.agents import Rule, match

MAX_AGENTS: Final = 4096
"""Most agents of one game."""
SHARED: Final = "shared_policy"
"""The policy of agents whose game names none."""
_PICTURE: Final = "2d"
"""A part of the names of observations that are pictures: bytes, written in hexadecimal digits."""
_CHOOSE: Final = "choose with --behavior 'PATTERN=NAME', once for each"


class AgentInfo(NamedTuple):
    """One agent as a game describes it.

    Attributes:
        policy: The name of its policy.
        observations: The spaces of its observations, by name.
        actions: The spaces of its actions, by name.
    """

    policy: str
    observations: Mapping[str, Any]
    actions: Mapping[str, Any]


def agents_of(message: Mapping[str, Any]) -> list[AgentInfo]:
    """Returns the agents that a message `env_info` describes.

    Older plug-ins send one space for all agents, and no names of policies.

    Raises:
        GameFault: It has another form.
    """
    count = _whole(message.get("n_agents"), "n_agents", MAX_AGENTS)
    columns: list[Sequence[Any]] = []
    for name, kind, default in (
        ("agent_policy_names", str, SHARED),
        ("observation_space", dict, None),
        ("action_space", dict, None),
    ):
        found = message.get(name, default)
        found = [found] * count if isinstance(found, kind) else found
        if not isinstance(found, list) or len(found) != count or not all(isinstance(each, kind) for each in found):
            raise GameFault(f"sent {name} {shown(found)}, and has {count} agents")
        columns.append(found)
    return [AgentInfo(*each) for each in zip(*columns, strict=True)]


def _whole(value: object, what: str, most: int) -> int:
    """Returns a number that Godot may have printed with a decimal point.

    Raises:
        GameFault: It is no whole number from 1 to `most`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not 1 <= value <= most:
        raise GameFault(f"sent {what} {shown(value)}, which must be a whole number from 1 to {most}")
    return int(value)


@dataclass(frozen=True, eq=False)
class AgentObservations:
    """Encodes the observations of agents with the same spaces.

    Attributes:
        plan: Encodes them.
        pictures: Shapes of the pictures among them, by name.
    """

    plan: ObservationPlan
    pictures: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "AgentObservations":
        """Returns the observations of a game's message, with the types and shapes that its own trainer gives them.

        Raises:
            GameFault: A space has another form.
        """
        from gymnasium import spaces  # noqa: PLC0415 - games describe their agents after the command line is read

        parts: dict[str, Any] = {}
        pictures: dict[str, tuple[int, ...]] = {}
        left = MAX_DECODED_CHUNK_BYTES // np.dtype(np.float32).itemsize
        if not 1 <= len(told) <= MAX_OBSERVATIONS:
            raise GameFault(f"has {len(told)} observations, and 1 to {MAX_OBSERVATIONS} are allowed")
        for name, space in told.items():
            kind, size = _entries(space, "space", f"observation {shown(name)}")
            if kind == "discrete":
                parts[name] = spaces.Discrete(_whole(size, f"the size of observation {shown(name)}", MAX_CATEGORIES))
                continue
            if kind != "box":
                raise GameFault(f"has observation {shown(name)} of the space {shown(kind)}; box and discrete are known")
            shape = _shape(size, name)
            left -= math.prod(shape)
            if left < 0:
                raise GameFault(f"has observations of more than {MAX_DECODED_CHUNK_BYTES} bytes")
            if _PICTURE in name:
                pictures[name] = shape
                parts[name] = spaces.Box(0, 255, shape, np.uint8)
            else:
                parts[name] = spaces.Box(-np.inf, np.inf, shape, np.float32)
        return cls(ObservationPlan(spaces.Dict(parts)), pictures)

    def encode(self, observations: Sequence[Mapping[str, Any]]) -> Observations:
        """Returns one new array per observation, [n, *shape], of n agents.

        Raises:
            GameFault: An observation is missing, or has another form than its space.
        """
        try:
            if self.pictures:
                observations = [each | self._pictures(each) for each in observations]  # type: ignore[operator]
            return self.plan.encode(observations)
        except (ValueError, TypeError, OverflowError) as error:
            raise GameFault(f"sent an observation that differs from its space: {printable(str(error), 200)}") from None
        except KeyError as error:
            raise GameFault(f"sent observations without {shown(error.args[0])}") from None

    def _pictures(self, observation: Mapping[str, Any]) -> dict[str, NDArray[np.uint8]]:
        found = {}
        for name, shape in self.pictures.items():
            pixels = np.frombuffer(bytes.fromhex(observation[name]), np.uint8)
            if pixels.size != math.prod(shape):
                advice = "; without a window nothing is drawn: add --viz" if not pixels.size else ""
                raise ValueError(
                    f"picture {shown(name)} has {pixels.size} bytes, and its shape {list(shape)} "
                    f"{math.prod(shape)}{advice}"
                )
            found[name] = pixels.reshape(shape)
        return found


def _entries(space: object, kind: str, what: str) -> tuple[Any, Any]:
    """Returns the kind and the size of a space.

    Raises:
        GameFault: It has another form.
    """
    if not isinstance(space, dict) or kind not in space or "size" not in space:
        raise GameFault(f"describes {what} by {shown(space)}, which must have {kind} and size")
    return space[kind], space["size"]


def _shape(size: object, name: str) -> tuple[int, ...]:
    if not isinstance(size, list) or not 1 <= len(size) < MAX_RANK:
        raise GameFault(
            f"describes observation {shown(name)} by the size {shown(size)}, which must be a list of numbers"
        )
    return tuple(_whole(axis, f"the size of observation {shown(name)}", MAX_DECODED_CHUNK_BYTES) for axis in size)


class AgentActions:
    """Makes the actions of agents with the same spaces.

    Args:
        told: The spaces of a game's message, by name.

    Raises:
        GameFault: A space has another form.

    Attributes:
        spec: The declared actions: continuous axes and branches, each in the order of the game's names.
        names: Names and sizes of the actions in the game's order; a size of 0 is a choice.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        names: list[tuple[str, int]] = []
        branches: list[int] = []
        for name, space in told.items():
            kind, size = _entries(space, "action_type", f"action {shown(name)}")
            if kind == "continuous":
                names.append((name, _whole(size, f"the size of action {shown(name)}", MAX_CONTINUOUS_ACTIONS)))
            elif kind == "discrete":
                branches.append(_whole(size, f"the size of action {shown(name)}", MAX_CATEGORIES))
                names.append((name, 0))
            else:
                raise GameFault(f"has action {shown(name)} of type {shown(kind)}; continuous and discrete are known")
        self.names = tuple(names)
        axes = sum(size for _, size in names)
        if axes > MAX_CONTINUOUS_ACTIONS:
            raise GameFault(f"has {axes} continuous actions, and {MAX_CONTINUOUS_ACTIONS} are allowed")
        self.spec = ActionSpec(axes, tuple(branches), (-1.0,) * axes, (1.0,) * axes)

    def make(self, actions: Actions) -> list[dict[str, Any]]:
        """Returns the actions of n agents as a game takes them: numbers from -1 to 1 in lists, and choices as integers."""
        agents = len(actions.log_prob)
        axes: list[list[float]] = [[]] * agents
        if actions.environment_continuous is not None:
            # NaN: chosen on an observation with NaN.
            axes = np.clip(np.nan_to_num(actions.environment_continuous), -1.0, 1.0).tolist()
        choices: list[list[int]] = [[]] * agents if actions.discrete is None else actions.discrete.tolist()
        bounds = list(pairwise(accumulate((size for _, size in self.names), initial=0)))
        made = []
        for of_agent, chosen in zip(axes, choices, strict=True):
            choice = iter(chosen)
            made.append(
                {
                    name: of_agent[begin:end] if end > begin else next(choice)
                    for (name, _), (begin, end) in zip(self.names, bounds, strict=True)
                }
            )
        return made


@dataclass(frozen=True, eq=False)
class Part:
    """The agents of one behavior id in a game.

    Attributes:
        spec: Their observations and actions.
        team: Their team.
        observations: Encodes their observations.
        actions: Makes their actions.
        agents: Their places in the game's messages.
    """

    spec: BehaviorSpec
    team: int
    observations: AgentObservations
    actions: AgentActions
    agents: list[int] = field(default_factory=list)

    @property
    def behavior_id(self) -> str:
        """Name of the behavior with the team."""
        return f"{self.spec.name}?team={self.team}"


class PolicyRoles:
    """Gives agents their behaviors and teams, by the names of their policies; equal for all games of a process.

    Args:
        behaviors: Names of behaviors by patterns of names of policies; none = see `_name`.
        teams: Numbers of teams by patterns of names of policies; 0 for those that match none.
        run: The learner's answer.
    """

    def __init__(self, behaviors: Sequence[Rule], teams: Sequence[Rule], run: RunInfo) -> None:
        self._behaviors = behaviors
        self._teams = teams
        self._run = run
        self._first: dict[str, tuple[str, BehaviorSpec, tuple[tuple[str, int], ...]]] = {}

    def parts(self, agents: Sequence[AgentInfo]) -> list[Part]:
        """Returns the agents of a game by behavior id.

        Raises:
            GameFault: A space has another form.
            UnsupportedSpace: Spaces cannot be sent, or agents of one behavior have different ones.
            ActorError: The rules or the run have no behavior for a policy.
        """
        policies = dict.fromkeys(agent.policy for agent in agents)
        names = {policy: self._name(policy, len(policies)) for policy in policies}
        parts: dict[tuple[str, int], Part] = {}
        known: dict[str, AgentInfo] = {}
        for place, agent in enumerate(agents):
            team = int(match(self._teams, agent.policy) or 0)
            if known.get(agent.policy) != agent:
                known[agent.policy] = agent
                part = self._part(names[agent.policy], team, agent)
                parts.setdefault((part.spec.name, team), part)
            parts[names[agent.policy], team].agents.append(place)
        return list(parts.values())

    def _part(self, name: str, team: int, agent: AgentInfo) -> Part:
        try:
            observations, actions = AgentObservations.of(agent.observations), AgentActions(agent.actions)
            spec = BehaviorSpec(name, observations.plan.specs, actions.spec)
            BehaviorSpec.from_message(spec.to_message())
        except BadSpec as error:
            raise UnsupportedSpace(f"the agents of policy {shown(agent.policy)} cannot be declared: {error}") from error
        policy, first, keys = self._first.setdefault(name, (agent.policy, spec, actions.names))
        differences = mismatches(first, spec) or ([] if keys == actions.names else ["other names of actions"])
        if differences:
            raise UnsupportedSpace(
                f"agents of policies {shown(policy)} and {shown(agent.policy)} have different spaces "
                f"({printable('; '.join(differences), 300)}), and agents of one behavior need equal ones; give them policies "
                "of different names in Godot, and behaviors by --behavior 'PATTERN=NAME'"
            )
        return Part(spec, team, observations, actions)

    def _name(self, policy: str, policies: int) -> str:
        """Returns the behavior of a policy: by the rules, the run's only one for a game's only policy, or its own name.

        Raises:
            ActorError: There is none.
        """
        if self._behaviors:
            name = match(self._behaviors, policy)
            if name is None:
                raise ActorError(
                    ExitCode.USAGE, f"no --behavior matches the policy {shown(policy)}; add --behavior 'PATTERN=NAME'"
                )
            return name
        behaviors = self._run.behaviors
        if policy in behaviors:
            return policy
        if policies == 1:
            return behavior_of_run(self._run, policy, _CHOOSE)
        if behaviors:
            raise ActorError(
                ExitCode.USAGE,
                f"the game has {policies} policies, of which {shown(policy)} is no behavior of run {self._run.run_id} "
                f"({', '.join(behaviors)}); {_CHOOSE}",
            )
        return policy
