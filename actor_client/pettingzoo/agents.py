"""Reads both interfaces of PettingZoo, parallel and turn-based (AEC), as reports of agents."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from actor_client.envs.errors import RESET_VALUES, STEP_VALUES, count_fault, info_fault

_NO_INFO: Final[Mapping[str, Any]] = {}


class WrongReport(Exception):  # noqa: N818 - says what the report is
    """An environment returned something that the interface of PettingZoo does not allow; the text is one line."""


class AgentReport(NamedTuple):
    """One agent that asks for an action, or whose episode has ended.

    Attributes:
        agent: Its name.
        observation: Its observation, as the environment returned it.
        reward: The sum of its rewards since its last action.
        info: Its info.
        terminated: Its episode ended in a terminal state.
        truncated: Its episode was cut off.
    """

    agent: str
    observation: Any
    reward: float
    info: Mapping[str, Any]
    terminated: bool = False
    truncated: bool = False


class Report(NamedTuple):
    """The agents of one environment after a step or a reset.

    Attributes:
        ended: Agents whose episodes ended, in the order in which they ended.
        asking: Agents that ask for an action; none if the episode of the environment is over.
    """

    ended: list[AgentReport]
    asking: list[AgentReport]


class Agents(Protocol):
    """An environment of either interface."""

    @property
    def environment(self) -> Any:
        """The PettingZoo environment."""

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Report:
        """Begins an episode.

        Raises:
            WrongReport: See the class; any other exception is the environment's own.
        """

    def step(self, actions: Mapping[str, Any]) -> Report:
        """Takes an action of each asking agent.

        Raises:
            WrongReport: See the class; any other exception is the environment's own.
        """


class ParallelAgents:
    """An environment with the interface of `pettingzoo.ParallelEnv`: all agents act at once.

    An agent asks for an action if it is in `agents` and has an observation. If it has none, it does not act in this
    step, and its rewards are added up. An agent that has ended may return; its next episode begins then.

    Args:
        environment: The environment.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self._living: dict[str, float] = {}

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Report:
        """Begins an episode; see `Agents.reset`."""
        result = self.environment.reset(seed=seed, options=options)
        if (fault := count_fault("reset", result, RESET_VALUES)) is not None:
            raise WrongReport(fault)
        observations, infos = result
        self._living = {}
        return Report([], self._asking(observations, infos, ()))

    def step(self, actions: Mapping[str, Any]) -> Report:
        """Takes an action of each asking agent; see `Agents.step`."""
        result = self.environment.step(dict(actions))
        if (fault := count_fault("step", result, STEP_VALUES)) is not None:
            raise WrongReport(fault)
        observations, rewards, terminations, truncations, infos = result
        living = self._living
        for agent, reward in rewards.items():
            if agent in living:
                living[agent] += number(agent, reward)
        over = {agent for agent in (*terminations, *truncations) if _is_over(agent, terminations, truncations)}
        ended = []
        for agent in [agent for agent in living if agent in over]:
            if agent not in observations:
                raise WrongReport(f"agent {agent} ended without an observation; step() must return its last one")
            ended.append(
                AgentReport(
                    agent,
                    observations[agent],
                    living.pop(agent),
                    info_of(infos, agent),
                    bool(terminations.get(agent)),
                    bool(truncations.get(agent)),
                )
            )
        if gone := [agent for agent in living if agent not in self.environment.agents]:
            raise WrongReport(
                f"agent {gone[0]} is no longer in agents, but was neither terminated nor truncated; step() must "
                "return either of them as True for an agent that leaves"
            )
        return Report(ended, self._asking(observations, infos, over))

    def _asking(self, observations: Mapping[str, Any], infos: Any, over: Any) -> list[AgentReport]:
        """Returns the agents that ask; their sums of rewards begin again."""
        living = self._living
        present = [agent for agent in self.environment.agents if agent not in over]
        asking = []
        for agent in present:
            if agent in observations:
                reward = living.get(agent, 0.0)
                living[agent] = 0.0
                asking.append(AgentReport(agent, observations[agent], reward, info_of(infos, agent)))
        if present and not asking:
            raise WrongReport(f"none of the agents {', '.join(map(str, present))} has an observation")
        return asking


def _is_over(agent: str, terminations: Mapping[str, Any], truncations: Mapping[str, Any]) -> bool:
    return bool(terminations.get(agent)) or bool(truncations.get(agent))


class TurnAgents:
    """An environment with the interface of `pettingzoo.AECEnv`: one agent acts at a time.

    `last()` returns the sum of the selected agent's rewards since its last action. An environment selects each agent
    that has ended once more, and only then returns its last rewards: those of both players of a game that is over.

    Args:
        environment: The environment.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Report:
        """Begins an episode; see `Agents.reset`."""
        self.environment.reset(seed=seed, options=options)
        return self._report()

    def step(self, actions: Mapping[str, Any]) -> Report:
        """Takes the action of the selected agent; see `Agents.step`."""
        self.environment.step(actions[self.environment.agent_selection])
        return self._report()

    def _report(self) -> Report:
        environment = self.environment
        ended: dict[str, AgentReport] = {}
        while environment.agents:
            agent = environment.agent_selection
            result = environment.last()
            if (fault := count_fault("last", result, STEP_VALUES)) is not None:
                raise WrongReport(fault)
            observation, reward, terminated, truncated, info = result
            report = AgentReport(
                agent, observation, number(agent, reward), checked_info(agent, info), bool(terminated), bool(truncated)
            )
            if not (terminated or truncated):
                return Report(list(ended.values()), [report])
            if agent in ended:
                raise WrongReport(
                    f"agent {agent} is selected again after its end; step(None) must remove it from agents"
                )
            ended[agent] = report
            environment.step(None)
        return Report(list(ended.values()), [])


def agents_of(environment: Any) -> Agents | None:
    """Returns the agents of an environment of either interface; None for any other object."""
    if all(hasattr(type(environment), name) or hasattr(environment, name) for name in ("last", "agent_iter")):
        return TurnAgents(environment)
    if callable(getattr(environment, "observation_space", None)) and callable(
        getattr(environment, "action_space", None)
    ):
        return ParallelAgents(environment)
    return None


def info_of(infos: Any, agent: str) -> Mapping[str, Any]:
    """Returns the info of an agent; empty if there is none.

    Raises:
        WrongReport: The infos, or that of the agent, are no dictionary.
    """
    if not isinstance(infos, Mapping):
        raise WrongReport(f"infos must be a dictionary by agent; got {type(infos).__name__}")
    return checked_info(agent, infos.get(agent, _NO_INFO))


def checked_info(agent: str, info: Any) -> Mapping[str, Any]:
    """Returns the info of an agent.

    Raises:
        WrongReport: It is no dictionary.
    """
    if not isinstance(info, Mapping):
        raise WrongReport(f"agent {agent}: {info_fault('step', info)}")
    return info


def number(agent: str, reward: Any) -> float:
    """Returns a reward as a number.

    Raises:
        WrongReport: It is none.
    """
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise WrongReport(f"the reward of agent {agent} must be a number; got {reward!r:.80}") from None
