"""One environment for the rollout: its exchanges, its parameters, and its recovery after a failure."""

import gc
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from rollcast.enums import Purpose
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.envs.errors import EnvironmentFailed, UnknownEnvironment, UnsupportedSpace
from actor_client.envs.parameters import OPTION, EnvironmentParameters, setter_of, takes_options
from actor_client.envs.seeds import environment_seed
from actor_client.envs.tracebacks import place_of_code
from actor_client.exits import ActorError
from actor_client.pettingzoo.agent_roles import AgentRoles, Form
from actor_client.pettingzoo.agents import Agents, Report, WrongReport
from actor_client.pettingzoo.batches import GroupReward, Part, Reader
from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AgentRequest
from actor_client.rollout.agents.stepping import AgentReport
from actor_client.rollout.evaluation import OTHER_STREAM
from actor_client.rollout.failures import FailureRate
from actor_client.rollout.link import SessionLink
from actor_client.rollout.vector.environments import CLOSE, CONSTRUCTION, RESET, STEP

_NO_WAY_IN: Final = "the environment has no method set_parameters, and its reset() takes no options"

_log = structlog.get_logger(__name__)


class Calls:
    """Notes the calls of environments, for the watch (`actor_client.rollout.vector.watch.WatchedCalls`).

    Args:
        num_envs: Number of environments.

    Attributes:
        num_envs: Number of environments.
        calls: Number of calls begun.
        call: The present call; empty between two calls.
        active: The environment that is called.
        ending: Empty: `actor_client.endings.limited` watches the last calls.
    """

    ending = ""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.calls = 0
        self.call = ""
        self.active: int | None = None

    def begin(self, env: int, call: str) -> None:
        """Notes the start of a call."""
        self.calls += 1
        self.call, self.active = call, env

    def end(self) -> None:
        """Notes that the call has returned."""
        self.call = ""


class AgentEnvironment:
    """One PettingZoo environment of a process, across failures; a `SteppedSimulator` of the rollout.

    Args:
        worker: Number of the environment in this actor.
        agents: The environment, made before.
        make: Makes it again after a failure.
        roles: The seats of agents.
        link: The session, for seeds.
        calls: Notes calls, for the watch.
        share: See `GroupReward`.
        max_failures: See `FailureRate`.

    Attributes:
        worker: Number of the environment in this actor.
        is_running: Its agents may report.
        reset_due: Its next exchange is answered with a reset.
        revision: Revision of the parameters of the present episode; 0 = none reach the environment.
        steps: Steps taken.
        rate: Judges its failures.
    """

    def __init__(
        self,
        worker: int,
        agents: Agents,
        make: Callable[[], Agents],
        *,
        roles: AgentRoles,
        link: SessionLink,
        calls: Calls,
        share: GroupReward,
        max_failures: int,
    ) -> None:
        self.worker = worker
        self.is_running = False
        self.reset_due = False
        self.revision = 0
        self.steps = 0
        self.rate = FailureRate(max_failures)
        self._make = make
        self._roles = roles
        self._link = link
        self._calls = calls
        self._share = share
        self._parameters = EnvironmentParameters(1)
        self._assignment: policy_pb2.Assignment | None = None
        self._failures = 0
        self._resets = 0
        self._process = os.getpid()
        self._actions: Mapping[str, Any] | None = None
        self._use(agents)

    def _use(self, agents: Agents) -> None:
        """Takes over an environment that was just made.

        Raises:
            UnsupportedSpace: It has other spaces than before.
        """
        self._agents, self._is_open = agents, True
        self._reader = Reader(self._roles, agents.environment, self._share)
        self._setter = setter_of(agents.environment)
        self._takes_options = takes_options(agents.environment)
        self._begins, self._actions = True, None

    @property
    def behaviors(self) -> list[tuple[BehaviorSpec, int, int]]:
        """Spec, team and number of possible agents of each behavior id; see `Reader.forms`."""
        return [(form.spec, form.team, agents) for form, agents in self._reader.forms.items()]

    @property
    def takes_parameters(self) -> bool:
        """True if environment parameters reach the environment."""
        return self._setter is not None or self._takes_options

    @property
    def is_ready(self) -> bool:
        """True if it can continue: it has actions, or is about to be reset."""
        return self._begins or self._actions is not None

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sets the parameters of later episodes, and notes a reset if the learner asks for one."""
        before, self._assignment = self._assignment, assignment
        if self.is_running:
            self.reset_due |= assignment.reset == policy_pb2.RESET_MODE_NOW
        if before is not None and before.settings_revision == assignment.settings_revision:
            return
        names = sorted(assignment.environment_parameters)
        if names and self.takes_parameters:
            self._parameters.assign(assignment)
        elif names and before is None and self.worker == 0:
            _log.warning("environment_parameters_not_applied", parameters=", ".join(names), reason=_NO_WAY_IN)

    def act(self, actions: Mapping[str, Any]) -> None:
        """Takes the actions of the next step, by agent."""
        self._actions = actions

    def restart(self) -> None:
        """Notes that the environment is to be reset in place of its next step."""
        self._begins, self.reset_due = True, False
        self._resets += 1

    def advance(self) -> list[AgentReport]:
        """Takes one step or begins an episode; returns the agents of the message, of which at least one asks.

        Raises:
            EnvironmentFailed: The environment failed, and must be made again.
            ActorError: An agent cannot have a seat.
        """
        agents = self._agents
        try:
            if not self._is_open:
                self._remake()
            if self._begins:
                self._begin(seeded=True)
            else:
                self._step()
            return self._reports(self._reader.parts())
        except ActorError:
            raise
        except Exception as error:
            cause = str(error) if isinstance(error, WrongReport) else error
            raise EnvironmentFailed(self.worker, cause, place_of_code(agents.environment.step)) from error
        finally:
            self._calls.end()

    def _reports(self, parts: Sequence[Part]) -> list[AgentReport]:
        exchange, revision = Exchange(self, parts), self.revision
        return [
            AgentReport(
                form.spec,
                form.team,
                AgentRequest(exchange, form.behavior_id, asking, ended, settings_revision=revision, results=results),
                stats,
            )
            for form, _, asking, ended, stats, results in parts
        ]

    def _step(self) -> None:
        actions, self._actions = self._actions or {}, None
        self._calls.begin(self.worker, STEP)
        report = self._agents.step(actions)
        self.steps += 1
        self._reader.take(report)
        if not report.asking:
            self._begin(seeded=False)

    def _begin(self, *, seeded: bool) -> None:
        """Begins an episode of the environment.

        Args:
            seeded: Begin with a seed; otherwise the environment continues its random numbers.
        """
        seed = self._next_seed() if seeded else None
        if seed is not None:
            self._parameters.seed([seed])
        values = dict(self._parameters.draw(0))
        options = None
        if values and self._setter is not None:
            self._setter(values)
        elif values:
            options = {OPTION: values}
        self._calls.begin(self.worker, RESET)
        report: Report = self._agents.reset(seed, options)
        if not report.asking:
            raise WrongReport("no agent asks for an action after reset()")
        self._reader.begin()
        self._reader.take(report)
        self.revision = self._parameters.revision
        self.is_running, self._begins = True, False

    def _next_seed(self) -> int:
        """Returns another seed after each failure and evaluation, and the same seed for each evaluation."""
        parts = () if self._assignment is None else self._assignment.behaviors
        is_evaluation = any(part.purpose == int(Purpose.EVALUATE) for part in parts)
        life = OTHER_STREAM + self.rate.in_row(self.steps) if is_evaluation else self._failures + self._resets
        return environment_seed(self._link.run_seed, self._link.actor_index, self.worker, life=life)

    def _remake(self) -> None:
        """Makes the environment again.

        Raises:
            EnvironmentFailed: It cannot be made, or differs from the first one.
        """
        self._calls.begin(self.worker, CONSTRUCTION)
        try:
            self._use(self._make())
        except (UnknownEnvironment, UnsupportedSpace) as error:  # making it worked before and may work again
            raise EnvironmentFailed(self.worker, error.message, traceback=error.traceback) from error

    def fail(self, failure: EnvironmentFailed) -> None:
        """Closes the environment after a failure; the next `advance` makes it again."""
        self.rate.failed(self.steps)
        self._failures += 1
        self.is_running = self.reset_due = False
        failure.forget()
        self._calls.begin(self.worker, CLOSE)
        self.close()
        gc.collect()  # now, while the watch follows the call, and not at some time: an environment may have a `__del__`
        self._calls.end()
        self._begins = True

    def close(self) -> None:
        """Closes the environment, once; never raises."""
        if os.getpid() != self._process:  # forked by the environment's code, and came back: it is no second actor
            traceback.print_exc()
            os._exit(1)
        if self._is_open:
            self._is_open = False
            close(self.worker, self._agents)


def close(env: int, agents: Agents) -> None:
    """Closes an environment; an error is only logged, because it must not hide the reason of the end."""
    try:
        agents.environment.close()
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("environment_close_failed", env=env, error=str(error))


class Exchange:
    """One message of an environment, answered once all its asking agents have actions.

    Args:
        environment: The environment.
        parts: The agents of the message.

    Attributes:
        simulator: The environment.
    """

    __slots__ = ("_actions", "_asking", "simulator")

    def __init__(self, environment: AgentEnvironment, parts: Sequence[Part]) -> None:
        self.simulator = environment
        self._asking: dict[str, tuple[Form, list[str]]] = {
            part.form.behavior_id: (part.form, part.names) for part in parts if part.names
        }
        self._actions: dict[str, Any] = {}

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior id; returns whether all actions are present."""
        form, names = self._asking.pop(behavior_id)
        chosen = form.actions.singles(actions.environment_continuous, actions.discrete)
        self._actions.update(zip(names, chosen, strict=True))
        return not self._asking

    def answer(self) -> None:
        """Lets the environment take these actions."""
        self.simulator.act(self._actions)

    def answer_reset(self) -> None:
        """Resets the environment; actions chosen in the meantime are dropped."""
        self.simulator.restart()
