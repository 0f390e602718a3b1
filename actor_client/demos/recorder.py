"""Records episodes as demonstrations, until there are enough."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.sensors import LARGEST
from rollcast.demonstrations.writing import Action, DemonstrationWriter
from rollcast.specs import BehaviorSpec

from actor_client.exits import ActorError, ExitCode

_log = structlog.get_logger(__name__)

ENOUGH: Final = "all requested episodes are recorded"
"""The reason for the stop of an actor that has recorded all requested episodes."""


class DemoRecorder:
    """Records the episodes of any agents of one behavior.

    With a limit, the first episodes that *begin* are recorded. With several agents, the first episodes to end would be
    the shorter ones.

    Args:
        path: The file, which must not exist.
        spec: Observations and actions.
        episodes: Episodes to record; 0 = no limit.
        on_enough: Called once, with the reason, when the requested episodes are recorded.
        team: Team of the agents.

    Attributes:
        unusable: Episodes that were left out, because they contain NaN or infinity.

    Raises:
        ActorError: The file exists, or cannot be written.
    """

    def __init__(
        self,
        path: Path,
        spec: BehaviorSpec,
        *,
        episodes: int = 0,
        on_enough: Callable[[str], object] = lambda _: None,
        team: int = 0,
    ) -> None:
        self.unusable = 0
        self._limit = episodes
        self._on_enough = on_enough
        self._agents = 0
        self._begun = 0
        self._seen: dict[int, Sequence[NDArray[Any]]] = {}
        self._left_out: set[int] = set()
        with _told():
            self._writer = DemonstrationWriter(path, spec, team=team)
        _log.info("recording", file=str(path), episodes=episodes or "no limit")

    def new_agent(self) -> int:
        """Returns an unused number for an agent."""
        self._agents += 1
        return self._agents

    @property
    def is_enough(self) -> bool:
        """True if all requested episodes are recorded."""
        return 0 < self._limit <= self._writer.episodes

    def step(
        self,
        agent: int,
        observations: Sequence[NDArray[Any]],
        action: Action,
        reward: float,
        *,
        following: Sequence[NDArray[Any]],
        group: int = 0,
        group_reward: float = 0.0,
    ) -> None:
        """Takes one step of an agent; see `DemonstrationWriter.step`.

        Args:
            agent: The agent's number.
            observations: Observations on which the action was chosen, [*shape] each.
            action: The action.
            reward: The agent's reward.
            following: The next observations, [*shape] each.
            group: Group of the agent; 0 = none.
            group_reward: The group's reward.

        Raises:
            ActorError: The episodes that have not ended are too large.
        """
        if agent in self._left_out:
            return
        if agent not in self._seen:
            if self._limit and self._begun >= self._limit:
                self._left_out.add(agent)
                return
            self._begun += 1
        if not _is_usable(observations, action, reward, group_reward):
            self._leave_out(agent)
            return
        self._seen[agent] = following
        with _told():
            self._writer.step(agent, observations, action, reward, group=group, group_reward=group_reward)

    def end(self, agent: int, observations: Sequence[NDArray[Any]], *, interrupted: bool) -> None:
        """Ends an agent's episode.

        Args:
            agent: The agent's number.
            observations: The last observations, [*shape] each.
            interrupted: Whether the episode was ended from outside.

        Raises:
            ActorError: The file cannot be written.
        """
        if agent in self._seen and not _are_finite(observations):
            self._leave_out(agent)
        self._left_out.discard(agent)
        if self._seen.pop(agent, None) is None:
            return
        with _told():
            self._writer.end(agent, observations, interrupted=interrupted)
        if self.is_enough:
            self._on_enough(ENOUGH)

    def drop(self, agent: int) -> None:
        """Forgets an agent, whose episode will not continue; another episode is recorded instead."""
        self._left_out.discard(agent)
        if self._seen.pop(agent, None) is not None:
            self._writer.drop(agent)
            self._begun -= 1

    def drop_all(self) -> None:
        """Forgets all agents."""
        for agent in [*self._seen, *self._left_out]:
            self.drop(agent)

    def close(self, *, failed: bool = False) -> None:
        """Ends the recording and reports its content.

        Episodes that have not ended are left out, unless none has ended: then they end at their last step. A file
        without an episode is removed.

        Args:
            failed: An error, reported elsewhere, ends the recording; nothing more is reported if no episode was seen.

        Raises:
            ActorError: The file cannot be written.
        """
        try:
            if not self._writer.episodes:
                for agent, observations in list(self._seen.items()):
                    self.end(agent, observations, interrupted=True)
        finally:
            self._seen.clear()
            self._writer.close()
            self._say(failed=failed)

    def _say(self, *, failed: bool) -> None:
        """Reports the file's content, and removes the file if it is empty."""
        if not self._writer.episodes:
            self._writer.path.unlink(missing_ok=True)
            if self.unusable or not failed:
                _log.warning("nothing_recorded", file=str(self._writer.path), unusable_episodes=self.unusable)
            return
        returns = self._writer.returns
        _log.info(
            "recorded",
            file=str(self._writer.path),
            episodes=self._writer.episodes,
            steps=self._writer.steps,
            mean_return=round(float(np.mean(returns)), 4),
            least_return=round(min(returns), 4),
            unusable_episodes=self.unusable,
        )

    def _leave_out(self, agent: int) -> None:
        """Discards an unfinished episode; the agent's next one may be recorded."""
        self.drop(agent)
        self._left_out.add(agent)
        self.unusable += 1
        _log.warning("episode_not_recorded", agent=agent, reason="NaN, infinity, or a value too large to learn from")


def _is_usable(observations: Sequence[NDArray[Any]], action: Action, reward: float, group_reward: float) -> bool:
    acted = True if action.continuous is None else _are_finite([action.continuous])
    return acted and abs(reward) <= LARGEST and abs(group_reward) <= LARGEST and _are_finite(observations)


def _are_finite(observations: Sequence[NDArray[Any]]) -> bool:
    """Returns whether a reader would accept the observations; comparisons are false for NaN."""
    return all(values.dtype.kind != "f" or bool((np.abs(values) <= LARGEST).all()) for values in observations)


@contextmanager
def _told() -> Iterator[None]:
    """Turns a fault of the file into an error that ends the actor with one line."""
    try:
        yield
    except BadDemonstration as error:
        raise ActorError(ExitCode.NOT_WRITTEN, f"--record {error}") from None
