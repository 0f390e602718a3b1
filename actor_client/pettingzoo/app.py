"""The adapter of PettingZoo environments: makes and checks them, and casts their agents."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from actor_client.adapters import AgentAdapter
from actor_client.connection.session import RunInfo
from actor_client.endings import Actor, limited, watching
from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.envs.factory import DEFAULT_BEHAVIOR, behavior_of
from actor_client.exits import ActorError, ExitCode
from actor_client.pettingzoo.agent_roles import AgentRoles, RoleRules, unmatched
from actor_client.pettingzoo.agents import Agents
from actor_client.pettingzoo.batches import Reader
from actor_client.pettingzoo.environment import AgentEnvironment, Calls, close
from actor_client.pettingzoo.factory import make_agents
from actor_client.rollout.agents.stepping import RecoveringLoop
from actor_client.rollout.vector.watch import OneCall
from actor_client.running import behavior_of_run, run_actor
from actor_client.settings.agents import PettingZooSettings
from actor_client.settings.loading import load

_SHOWN: Final = 8
"""Names of agents in a warning."""
_CHOOSE: Final = "choose with --behavior 'PATTERN=NAME', once for each"


def run_pettingzoo(flags: Mapping[str, object]) -> ExitCode:
    """Steps environments for a learner; see `run_actor`."""
    return run_actor(PettingZooAdapter, load(PettingZooSettings, flags))


class PettingZooAdapter(AgentAdapter):
    """Steps PettingZoo environments.

    Args:
        settings: The user's settings.

    Raises:
        ActorError: The script of opponents cannot be used.
    """

    simulator = "PettingZoo"
    lockstep_fault = "agents that come and go do not support; remove rollcast.lockstep from the run file"

    def __init__(self, settings: PettingZooSettings) -> None:
        super().__init__(settings, settings.env, settings.opponent)
        self.connecting = {"env": settings.env, "num_envs": settings.num_envs}
        self._settings = settings
        self._rules = RoleRules(settings.behavior_rules, settings.team_rules, settings.group_rules)
        self._made: list[Agents] = []

    @contextmanager
    def prepared(self, actor: Actor) -> Iterator[None]:
        """Makes the environments, and closes those that are not stepped at the end of the block."""
        settings, made = self._settings, self._made

        def close_made() -> None:
            for env, agents in enumerate(made):
                close(env, agents)

        with super().prepared(actor), limited(settings, actor, close_made):
            with watching(settings, actor, OneCall(settings.num_envs)):
                made.extend(self._make() for _ in range(settings.num_envs))
                self._check(made[0])
            yield

    def _check(self, agents: Agents) -> None:
        """Checks names and spaces before there is a connection.

        Raises:
            ActorError: An agent has no behavior, or its spaces cannot be sent.
        """
        settings = self._settings
        try:
            Reader(AgentRoles(self._rules, DEFAULT_BEHAVIOR), agents.environment, settings.group_reward)
        except ActorError:
            raise
        except Exception as error:
            said = f"{settings.env}: the spaces of its agents cannot be read: {one_line(error)}"
            raise UnknownEnvironment(said, error) from error
        names = [str(name) for name in getattr(agents.environment, "possible_agents", None) or ()]
        for option in unmatched(self._rules, names) if names else ():
            structlog.get_logger().warning("pattern_without_agent", option=option, agents=", ".join(names[:_SHOWN]))

    def _make(self) -> Agents:
        return make_agents(self._settings.env, self._settings.env_kwargs)

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Steps the environments until the link stops.

        Raises:
            ActorError: The run has several behaviors and no pattern was given, or an environment failed too often.
            PolicyUnusable: A policy cannot act on the observations.
        """
        settings, link, made = self._settings, actor.link, self._made
        own = behavior_of(settings.env)
        name = (run.behaviors or (own,))[0] if self._rules.behaviors else behavior_of_run(run, own, _CHOOSE)
        roles, calls = AgentRoles(self._rules, name), Calls(settings.num_envs)
        environments: list[AgentEnvironment] = []

        def close_all() -> None:
            for environment in environments:
                environment.close()

        with limited(settings, actor, close_all):
            while made:
                environments.append(
                    AgentEnvironment(
                        len(environments),
                        made.pop(0),
                        self._make,
                        roles=roles,
                        link=link,
                        calls=calls,
                        share=settings.group_reward,
                        max_failures=settings.max_env_failures,
                    )
                )
            loop = RecoveringLoop(
                link,
                run.assignment,
                environments,
                script=self._script,
                observe=self.observe,
                heartbeat=actor.heartbeat,
            )
            with watching(settings, actor, calls):
                loop.run()
