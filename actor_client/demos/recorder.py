"""Records chosen episodes as demonstrations, until there are enough."""

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

ENOUGH: Final = "the episodes to record are recorded"
"""The reason with which an actor stops once it has recorded all it was asked for."""


class DemoRecorder:
    """Records the episodes of any agents of one behavior.

    With a limit, the first so many episodes that *begin* are recorded, not the first that end: those would be the
    shorter ones wherever several agents act at the same time.

    Args:
        path: the file, which must not exist.
        spec: what agents see and do.
        episodes: how many to record; 0 = no limit.
        on_enough: called once, with the reason, when they are recorded.
        team: of the agents.

    Attributes:
        unusable: episodes that were left out, because they held what is not finite.

    Raises:
        ActorError: the file exists, or cannot be written.
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
        """Returns a number for an agent that no other has."""
        self._agents += 1
        return self._agents

    @property
    def is_enough(self) -> bool:
        """True if all episodes that were asked for are recorded."""
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
            agent: who.
            observations: on which the action was chosen, [*shape] each.
            action: what was done.
            reward: what came of it.
            following: what was seen then, [*shape] each.
            group: of the agent; 0 = none.
            group_reward: what came of it for the group.

        Raises:
            ActorError: there is no room for episodes that have not ended.
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
            agent: who.
            observations: what was seen last, [*shape] each.
            interrupted: it was ended from outside.

        Raises:
            ActorError: the file cannot be written.
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
        """Forgets an agent, whose episode will not go on; another one is recorded instead."""
        self._left_out.discard(agent)
        if self._seen.pop(agent, None) is not None:
            self._writer.drop(agent)
            self._begun -= 1

    def drop_all(self) -> None:
        """Forgets all agents."""
        for agent in [*self._seen, *self._left_out]:
            self.drop(agent)

    def close(self, *, failed: bool = False) -> None:
        """Ends the recording and says what is in it.

        Episodes that have not ended are left out, unless none has ended at all: then they end where they are. A file
        without an episode is removed.

        Args:
            failed: an error ends it, which will be told: where nothing was seen there is nothing to add.

        Raises:
            ActorError: the file cannot be written.
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
        """Says what is in the file, and removes it if that is nothing."""
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
        """Gives up an episode amid it; the agent's next one may be recorded."""
        self.drop(agent)
        self._left_out.add(agent)
        self.unusable += 1
        _log.warning("episode_not_recorded", agent=agent, reason="NaN, infinity, or a value too large to learn from")


def _is_usable(observations: Sequence[NDArray[Any]], action: Action, reward: float, group_reward: float) -> bool:
    acted = True if action.continuous is None else _are_finite([action.continuous])
    return acted and abs(reward) <= LARGEST and abs(group_reward) <= LARGEST and _are_finite(observations)


def _are_finite(observations: Sequence[NDArray[Any]]) -> bool:
    """Says whether a reader would take them; comparisons are false for NaN."""
    return all(values.dtype.kind != "f" or bool((np.abs(values) <= LARGEST).all()) for values in observations)


@contextmanager
def _told() -> Iterator[None]:
    """Has a fault of the file end the actor in one line."""
    try:
        yield
    except BadDemonstration as error:
        raise ActorError(ExitCode.RECORDING_FAILED, f"--record {error}") from None
