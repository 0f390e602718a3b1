"""One game of this process: what it is asked, what it answers, and its restarts."""

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.builds.process import PlayerProcess
from actor_client.envs.base import Observations
from actor_client.envs.errors import EnvironmentFailed
from actor_client.godot.agent_roles import Part, PolicyRoles, agents_of
from actor_client.godot.messages import RESET, GameFault, column, decode, encode, shown
from actor_client.godot.ports import Port
from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AgentRequest, AskingAgents, EndedAgents, faulty_rows
from actor_client.rollout.agents.stepping import AgentReport
from actor_client.rollout.failures import FailureRate

TERMINAL: Final = "terminal_observation"
"""Key of an agent's info with its last observations, which newer plug-ins may send with the end of its episode."""
TRUNCATED: Final = "TimeLimit.truncated"
"""Key of an agent's info that says whether the episode was cut off."""
_LAST_WORDS_SECONDS: Final = 1.0
"""Longest time between the end of a connection and that of its process, which says why."""

_log = structlog.get_logger(__name__)


class Phase(enum.Enum):
    """What is next for a game."""

    CLOSED = enum.auto()
    """It is to be started."""
    STARTING = enum.auto()
    """It is to connect, and to describe its agents."""
    RESETTING = enum.auto()
    """It is to begin episodes."""
    ASKING = enum.auto()
    """Its agents wait for actions."""
    STEPPING = enum.auto()
    """It is to answer these actions."""


class Game:
    """A game, across restarts; a `RecoveringSimulator` of the rollout.

    Args:
        worker: Number of the game in this actor.
        open_port: Opens its port.
        start: Starts the process of a build, given the port and the number of earlier failures; None if the editor does.
        roles: The behaviors of agents.
        timeout_seconds: Seconds a process may take to connect, and to answer.
        max_failures: See `FailureRate`.
        clock: Monotonic seconds.

    Attributes:
        worker: Number of the game in this actor.
        is_running: Its agents may report.
        reset_due: Its next exchange is answered with a reset.
        steps: Steps taken.
        rate: Judges its failures.
        process: Its process; None before the first, and in the editor.
        step_seconds: Seconds from the newest actions to their answer.
    """

    def __init__(
        self,
        worker: int,
        open_port: Callable[[], Port],
        start: Callable[[int, int], PlayerProcess] | None,
        roles: PolicyRoles,
        *,
        timeout_seconds: float,
        max_failures: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker
        self.is_running = False
        self.reset_due = False
        self.steps = 0
        self.rate = FailureRate(max_failures)
        self.process: PlayerProcess | None = None
        self.step_seconds = 0.0
        self._open_port = open_port
        self._start = start
        self._roles = roles
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._port: Port | None = None
        self._phase = Phase.CLOSED
        self._since = clock()
        self._left_at: float | None = None
        self._failures = 0
        self._parts: list[Part] = []
        self._agents = 0
        self._seen: dict[str, Observations] = {}
        self._assignment: policy_pb2.Assignment | None = None

    @property
    def is_of_editor(self) -> bool:
        """True if the editor starts it, as often as its user likes."""
        return self._start is None

    @property
    def owes(self) -> bool:
        """True if it is to connect or to answer."""
        return self._phase in {Phase.STARTING, Phase.RESETTING, Phase.STEPPING}

    @property
    def behaviors(self) -> list[tuple[BehaviorSpec, int, int]]:
        """Nothing: a game describes its agents once it has started."""
        return []

    @property
    def is_ready(self) -> bool:
        """True if it can continue: it is to be started, has answered, or has failed."""
        port = self._port
        return port is None or self._phase is Phase.CLOSED or port.message is not None or bool(self._fault(port))

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Notes a reset if the learner asks for one."""
        before, self._assignment = self._assignment, assignment
        if self.is_running:
            self.reset_due |= assignment.reset == policy_pb2.RESET_MODE_NOW
        names = sorted(assignment.environment_parameters)
        if names and before is None and self.worker == 0:
            reason = "the plug-in has no message for them"
            _log.warning("environment_parameters_not_applied", parameters=", ".join(names), reason=reason)

    def advance(self) -> list[AgentReport]:
        """Starts the game, or takes its answer; returns its agents, if the answer has some.

        Raises:
            EnvironmentFailed: It failed, and must be started again.
            ActorError: It cannot be started, or its agents cannot have a behavior.
        """
        port = self._port
        if port is None or self._phase is Phase.CLOSED:
            self._begin()
            return []
        try:
            if port.message is None:
                raise GameFault(self._fault(port))
            return self._take(port, port.take())
        except GameFault as fault:
            raise EnvironmentFailed(self.worker, f"the game {fault}") from None

    def _begin(self) -> None:
        """Opens the port, and starts the process of a build."""
        self._left_at = None
        if self._start is None:
            self._port = self._port or self._open_port()
        else:
            self._close_port()
            self._port = self._open_port()  # a new one, to which no earlier process can connect
            self.process = self._start(self._port.number, self._failures)
            self.process.start()
        self._expect(Phase.STARTING)

    def _expect(self, phase: Phase) -> None:
        self._phase, self._since = phase, self._clock()

    def _fault(self, port: Port) -> str:
        """Returns why it cannot continue, in words that follow "the game "; empty if it can, or if that is not certain."""
        now, process = self._clock(), None if port.is_connected else self.process
        if process is not None and (how := process.how_it_ended()) is not None:
            words = process.last_words()
            return f"{how}{f'; its last output: {words}' if words else ''}"
        if port.fault:
            self._left_at = now if self._left_at is None else self._left_at
            return port.fault if self.is_of_editor or now - self._left_at >= _LAST_WORDS_SECONDS else ""
        if self.is_of_editor or not self.owes or now - self._since < self._timeout_seconds:
            return ""
        if port.is_connected:
            return (
                f"is connected, but has sent nothing for {self._timeout_seconds:g} s: it hangs, or takes longer (raise "
                "--timeout-wait, or --speedup)"
            )
        return (
            f"has not connected to port {port.number} within {self._timeout_seconds:g} s. Usual causes: its scene has no Sync "
            "node, or no AIController in the mode Training; it needs a window (--viz); it takes longer to load (raise "
            "--timeout-wait)"
        )

    def _take(self, port: Port, body: bytes) -> list[AgentReport]:
        """Takes an answer.

        Raises:
            GameFault: It is not what the protocol says.
        """
        if self._phase is Phase.STARTING:
            agents = agents_of(decode(body, "env_info"))
            self._parts, self._agents, self._seen = self._roles.parts(agents), len(agents), {}
            _log.info("game_connected", worker=self.worker, port=port.number, agents=len(agents))
            self._reset(port)
            return []
        if self._phase is Phase.RESETTING:
            message = decode(body, "reset")
            rewards, ended = np.zeros(self._agents, np.float32), np.zeros(self._agents, np.bool_)
            self.is_running = True
        else:
            message = decode(body, "step")
            rewards, ended = self._rewards(message), self._ended(message)
            self.steps += 1
            self.step_seconds = self._clock() - self._since
        self._expect(Phase.ASKING)
        return self._reports(message, rewards, ended)

    def _rewards(self, message: Mapping[str, Any]) -> NDArray[np.float32]:
        given = column(message, "reward", self._agents)
        try:
            with np.errstate(over="ignore"):  # a reward beyond float32 becomes infinite, and its row faulty
                rewards = np.array(given, np.float32)
        except (ValueError, TypeError, OverflowError):
            rewards = np.zeros(0, np.float32)
        if rewards.shape != (self._agents,):
            raise GameFault(f"sent rewards that are no numbers: {shown(given)}")
        return rewards

    def _ended(self, message: Mapping[str, Any]) -> NDArray[np.bool_]:
        given = column(message, "done", self._agents)
        if not all(isinstance(each, bool | int | float) for each in given):
            raise GameFault(f"sent done that is neither true nor false: {shown(given)}")
        return np.array(given).astype(np.bool_)

    def _reports(
        self, message: Mapping[str, Any], rewards: NDArray[np.float32], ended: NDArray[np.bool_]
    ) -> list[AgentReport]:
        observations = column(message, "obs", self._agents)
        infos = _infos(message, ended)
        exchange = Exchange(self, self._parts)
        return [
            AgentReport(
                part.spec,
                part.team,
                AgentRequest(
                    exchange,
                    part.behavior_id,
                    *self._agents_of(part, observations, rewards[part.agents], ended[part.agents], infos),
                ),
            )
            for part in self._parts
        ]

    def _agents_of(
        self,
        part: Part,
        observations: Sequence[Any],
        rewards: NDArray[np.float32],
        ended: NDArray[np.bool_],
        infos: Mapping[int, Mapping[str, Any]],
    ) -> tuple[AskingAgents, EndedAgents]:
        """Returns the agents of a behavior id: all ask, those whose episode has ended for the first action of the next one."""
        ids = np.array(part.agents, np.int64)
        encoded = part.observations.encode([observations[place] for place in part.agents])
        rows = np.flatnonzero(ended)
        before = self._seen.get(part.behavior_id, encoded)
        last = [each[rows] for each in before]
        told = {row: infos[part.agents[row]] for row in rows.tolist() if part.agents[row] in infos}
        for place, row in enumerate(rows.tolist()):
            if isinstance(terminal := told.get(row, {}).get(TERMINAL), dict):
                for kept, (value,) in zip(last, part.observations.encode([terminal]), strict=True):
                    kept[place] = value
        cut = np.array([told.get(row, {}).get(TRUNCATED) is True for row in rows.tolist()], np.bool_)
        last_rewards, rewards = rewards[rows], np.where(ended, np.float32(0), rewards)
        faulty, faulty_last = faulty_rows(*encoded, rewards), faulty_rows(*last, last_rewards)
        self._seen[part.behavior_id] = encoded
        none, nothing = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.float32)
        return (
            AskingAgents(ids, encoded, None, rewards, none, nothing, faulty),
            EndedAgents(ids[rows], last, cut, last_rewards, none[rows], nothing[rows], faulty_last),
        )

    def act(self, actions: list[dict[str, Any]]) -> None:
        """Lets the game take a step.

        Args:
            actions: Of all agents, in the game's order.
        """
        if self._port is not None:
            self._port.ask(encode("action", action=actions))
            self._expect(Phase.STEPPING)

    def restart(self) -> None:
        """Lets the game begin episodes in place of its next step."""
        if self._port is not None:
            self._reset(self._port)

    def _reset(self, port: Port) -> None:
        self.reset_due = False
        port.ask(RESET)
        self._expect(Phase.RESETTING)

    @property
    def agents(self) -> int:
        """Number of its agents."""
        return self._agents

    def fail(self, failure: EnvironmentFailed) -> None:
        """Ends the game after a failure; the next `advance` starts it again, or waits for the editor."""
        self.rate.failed(self.steps)
        self._failures += 1
        self.is_running = self.reset_due = False
        failure.forget()
        if self.process is not None:
            self.process.end_at_once()
        if self._port is not None:
            self._port.hang_up()
        self._phase = Phase.CLOSED

    def dismiss(self) -> None:
        """Tells the game to end."""
        if self._port is not None:
            self._port.dismiss()

    def close(self) -> None:
        """Closes its port, after its process has ended."""
        self._close_port()

    def _close_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None


def _infos(message: Mapping[str, Any], ended: NDArray[np.bool_]) -> dict[int, Mapping[str, Any]]:
    """Returns the infos of agents whose episodes ended, by their place; older plug-ins send none."""
    given = message.get("info")
    if not isinstance(given, list) or len(given) != len(ended):
        return {}
    return {place: given[place] for place in np.flatnonzero(ended).tolist() if isinstance(given[place], dict)}


class Exchange:
    """One answer of a game, which is told the actions of its agents once all are chosen.

    Args:
        game: The game.
        parts: Its agents.

    Attributes:
        simulator: The game.
    """

    __slots__ = ("_actions", "_open", "simulator")

    def __init__(self, game: Game, parts: Sequence[Part]) -> None:
        self.simulator = game
        self._open = {part.behavior_id: part for part in parts}
        self._actions: list[dict[str, Any]] = [{}] * game.agents

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior id; returns whether all actions are present."""
        part = self._open.pop(behavior_id)
        for place, action in zip(part.agents, part.actions.make(actions), strict=True):
            self._actions[place] = action
        return not self._open

    def answer(self) -> None:
        """Lets the game take these actions."""
        self.simulator.act(self._actions)

    def answer_reset(self) -> None:
        """Resets the game; actions chosen in the meantime are dropped."""
        self.simulator.restart()
