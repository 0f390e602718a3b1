"""Records agents that come and go as demonstrations."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray
from rollcast.demonstrations.writing import Action
from rollcast.specs import BehaviorSpec

from actor_client.demos.recorder import DemoRecorder
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents

Agent = tuple[int, int]
"""The player and the agent's number in it."""


class _Pending(NamedTuple):
    """A decision whose outcome is not known yet: observations and actions."""

    observations: list[NDArray[Any]]
    action: Action


class AgentDemos:
    """Follows the agents of one behavior id from decision to decision; the calls must be in the order of events.

    Args:
        recorder: Takes the steps.
    """

    def __init__(self, recorder: DemoRecorder) -> None:
        self._recorder = recorder
        self._pending: dict[Agent, _Pending] = {}
        self._numbers: dict[Agent, int] = {}

    def ended(self, worker: int, ended: EndedAgents) -> None:
        """Ends the episodes of a player's agents."""
        for row, agent in enumerate(ended.ids.tolist()):
            key = worker, agent
            following = [values[row] for values in ended.observations]
            self._step(key, ended, row, following)
            number = self._numbers.pop(key, None)
            if number is not None:
                self._recorder.end(number, following, interrupted=bool(ended.interrupted[row]))

    def observed(self, worker: int, asking: AskingAgents) -> None:
        """Takes agents that ask for a decision, with the outcome of their last decision."""
        for row, agent in enumerate(asking.ids.tolist()):
            if (worker, agent) in self._pending:
                self._step((worker, agent), asking, row, [values[row] for values in asking.observations])

    def acted(self, asked: Sequence[tuple[int, AskingAgents]], actions: Actions) -> None:
        """Takes the actions of agents.

        Args:
            asked: Players with the requests of their agents.
            actions: One row per agent, in this order.
        """
        continuous, discrete = actions.environment_continuous, actions.discrete
        place = 0
        for worker, asking in asked:
            for row, agent in enumerate(asking.ids.tolist()):
                self._pending[worker, agent] = _Pending(
                    [values[row] for values in asking.observations],
                    Action(
                        None if continuous is None else continuous[place],
                        None if discrete is None else discrete[place],
                        None if asking.masks is None else asking.masks[row],
                    ),
                )
                place += 1

    def dropped(self, worker: int) -> None:
        """Forgets the agents of a player that has gone or restarts."""
        for key in [key for key in self._pending if key[0] == worker]:
            del self._pending[key]
        for key in [key for key in self._numbers if key[0] == worker]:
            self._recorder.drop(self._numbers.pop(key))

    def _step(self, key: Agent, batch: AskingAgents | EndedAgents, row: int, following: list[NDArray[Any]]) -> None:
        """Records the step from an agent's last decision until now."""
        pending = self._pending.pop(key, None)
        if pending is None:
            return
        if key not in self._numbers:
            self._numbers[key] = self._recorder.new_agent()
        # Values that were not finite are 0 by now; such an episode must not become a demonstration.
        faulty = batch.faulty is not None and bool(batch.faulty[row])
        self._recorder.step(
            self._numbers[key],
            pending.observations,
            pending.action,
            float("nan") if faulty else float(batch.rewards[row]),
            following=following,
            group=int(batch.group_ids[row]),
            group_reward=float(batch.group_rewards[row]),
        )


class PlayerDemos:
    """Writes one file per behavior of the players; the names of all files but the first include the behavior's name.

    Args:
        path: The first file.
        episodes: Episodes to record of each behavior; 0 = no limit.
        on_enough: Called with the reason when every behavior has enough.

    Raises:
        ActorError: The file exists, or cannot be written.
    """

    def __init__(self, path: Path, *, episodes: int = 0, on_enough: Callable[[str], object] = lambda _: None) -> None:
        self._path = path
        self._episodes = episodes
        self._on_enough = on_enough
        self._recorders: dict[str, DemoRecorder] = {}
        if path.exists():  # checked now, because players show their behaviors much later
            raise ActorError(
                ExitCode.NOT_WRITTEN, f"--record {path}: the file exists; choose another name, or remove it"
            )

    def of(self, spec: BehaviorSpec, team: int) -> AgentDemos:
        """Returns the observer of a behavior id; all teams of a behavior share a file.

        Raises:
            ActorError: See the class.
        """
        recorder = self._recorders.get(spec.name)
        if recorder is None:
            path = self._path
            if self._recorders:
                path = path.with_name(f"{path.stem}-{spec.name}{path.suffix}")
            recorder = self._recorders[spec.name] = DemoRecorder(
                path, spec, episodes=self._episodes, on_enough=self._one_has_enough, team=team
            )
        return AgentDemos(recorder)

    def close(self) -> None:
        """Ends the recording and reports the content of each file.

        Raises:
            ActorError: A file cannot be written; the others are closed in any case.
        """
        with ExitStack() as stack:
            for recorder in self._recorders.values():
                stack.callback(recorder.close)

    def _one_has_enough(self, reason: str) -> None:
        if all(recorder.is_enough for recorder in self._recorders.values()):
            self._on_enough(reason)
