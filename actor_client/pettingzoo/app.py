"""Runs the actor of PettingZoo environments: makes them, connects, steps, and closes."""

import structlog

from actor_client.connection.session import RunInfo
from actor_client.demos.players import PlayerDemos
from actor_client.endings import closing, limited, run_command, watching
from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.envs.factory import DEFAULT_BEHAVIOR, behavior_of
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.pettingzoo.agents import Agents
from actor_client.pettingzoo.batches import Reader
from actor_client.pettingzoo.cast import Cast, CastingRules, unmatched
from actor_client.pettingzoo.environment import AgentEnvironment, Calls, close
from actor_client.pettingzoo.factory import make_agents
from actor_client.pettingzoo.loop import EnvironmentLoop
from actor_client.platform import stop_signals
from actor_client.policy.actions import PolicyUnusable
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.vector.watch import OneCall
from actor_client.serving import served_metrics
from actor_client.settings.agents import PettingZooSettings
from actor_client.starting import make_link, recorded_players, refuse_lockstep

_SHOWN = 8
"""Names of agents in a warning."""


def run_pettingzoo(settings: PettingZooSettings) -> ExitCode:
    """Steps environments for a learner until the run is over, the time is over, or a signal comes.

    Returns:
        The exit code. The error that ended the actor has been written to standard error.
    """
    return run_command(lambda: PettingZooActor(settings).run(), settings)


class PettingZooActor:
    """One run of the command.

    Args:
        settings: The user's settings.

    Raises:
        ActorError: The script of opponents cannot be used.
    """

    def __init__(self, settings: PettingZooSettings) -> None:
        self._settings = settings
        self._rules = CastingRules(settings.behavior_rules, settings.team_rules, settings.group_rules)
        self._script = None if settings.opponent is None else ScriptedOpponent(settings.opponent)
        self._heartbeat = Heartbeat(settings.heartbeat_file)
        self._link = make_link(settings, self._heartbeat, "PettingZoo", opponent=settings.opponent)

    def run(self) -> None:
        """Makes the environments, connects, steps, and closes the session in any case.

        Raises:
            ActorError: The actor cannot continue.
        """
        settings, link = self._settings, self._link
        with stop_signals(link.request_stop), recorded_players(settings, link) as demos:
            # Environments first: they may start processes, which must not inherit gRPC's state.
            made: list[Agents] = []

            def close_made() -> None:
                for env, agents in enumerate(made):
                    close(env, agents)

            with limited(settings, link, close_made):
                with watching(self._settings, self._link, OneCall(settings.num_envs)):
                    made.extend(self._make() for _ in range(settings.num_envs))
                    self._check(made[0])
                link.start()
                if settings.max_wall_seconds is not None:
                    link.stop_after(settings.max_wall_seconds)
                with closing(link), served_metrics(settings, link, self._heartbeat, settings.env):
                    self._step(made, demos)

    def _check(self, agents: Agents) -> None:
        """Checks names and spaces before there is a connection.

        Raises:
            ActorError: An agent has no behavior, or its spaces cannot be sent.
        """
        settings = self._settings
        try:
            Reader(Cast(self._rules, DEFAULT_BEHAVIOR), agents.environment, settings.group_reward)
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

    def _step(self, made: list[Agents], demos: PlayerDemos | None) -> None:
        """Waits for the session, and steps the environments until the link stops.

        Args:
            made: The environments; taken over one by one.
            demos: Records demonstrations; None records none.

        Raises:
            ActorError: The learner refused the actor, or an environment failed too often.
        """
        settings, link = self._settings, self._link
        if settings.connect_timeout is None:
            structlog.get_logger().info(
                "connecting", address=settings.learner, env=settings.env, num_envs=settings.num_envs
            )
        run = link.open(settings.connect_timeout)
        refuse_lockstep(run, "agents that come and go do not support; remove rollcast.lockstep from the run file")
        cast = Cast(self._rules, self._behavior(run))
        calls = Calls(settings.num_envs)
        environments: list[AgentEnvironment] = []

        def close_all() -> None:
            for environment in environments:
                environment.close()

        with limited(settings, link, close_all):
            while made:
                agents = made.pop(0)
                environments.append(
                    AgentEnvironment(
                        len(environments),
                        agents,
                        self._make,
                        cast=cast,
                        link=link,
                        calls=calls,
                        share=settings.group_reward,
                    )
                )
            loop = EnvironmentLoop(
                link,
                run.assignment,
                environments,
                max_env_failures=settings.max_env_failures,
                script=self._script,
                demos=demos,
                heartbeat=self._heartbeat,
            )
            try:
                with watching(self._settings, self._link, calls):
                    loop.run()
            except PolicyUnusable as error:
                raise ActorError(ExitCode.POLICY_FAILED, str(error)) from None
        if link.error is not None:
            raise link.error

    def _behavior(self, run: RunInfo) -> str:
        """Returns the behavior of agents without a pattern: the run's only one, or the environment's own name.

        Raises:
            ActorError: The run has several behaviors, and no pattern was given.
        """
        if len(run.behaviors) > 1 and not self._rules.behaviors:
            names = ", ".join(run.behaviors)
            raise ActorError(
                ExitCode.USAGE,
                f"run {run.run_id} has the behaviors {names}; choose with --behavior 'PATTERN=NAME', once for each",
            )
        return run.behaviors[0] if run.behaviors else behavior_of(self._settings.env)
