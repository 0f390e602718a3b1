"""Evaluation on the actor: which episodes count, and how their records reach the learner.

Only the records are sent. No step of an evaluation is recorded, so it is in no books and needs no credit.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import structlog
from rollcast.specs import BehaviorSpec

from actor_client.logs import Notices
from actor_client.policy.actions import ActingPolicy
from actor_client.policy.noise import Noise
from actor_client.rollout.assignment import Task
from actor_client.rollout.chunks import ChunkBuilder
from actor_client.rollout.episodes import EpisodeRecord, EpisodeRecords
from actor_client.rollout.link import BehaviorLink

WAIT_SECONDS: Final = 0.5
"""Longest time that records wait for others before they are sent."""
MOST_WAITING: Final = 256
"""Send at once when this many records wait."""
OTHER_STREAM: Final = 2**32
"""Added to numbers that seeds are made of: an evaluation has random numbers of its own, the same in each."""

_log = structlog.get_logger(__name__)


class Quota:
    """Chooses which episodes count: the first ones to *begin*.

    The first ones to end would be the short ones among those that run at the same time, and the mean would be theirs.
    How long an episode will be is not known when it begins.

    Args:
        episodes: How many; 0 = all.
    """

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes
        self._begun = 0
        self._ended = 0

    @property
    def is_done(self) -> bool:
        """True if all that count have ended."""
        return 0 < self._episodes <= self._ended

    def begin(self) -> bool:
        """An episode begins; returns whether it counts."""
        counts = not self._episodes or self._begun < self._episodes
        self._begun += counts
        return counts

    def end(self) -> None:
        """An episode that counts has ended."""
        self._ended += 1

    def lose(self, episodes: int = 1) -> None:
        """So many that counted will never end, or cannot be reported: others take their place."""
        self._begun -= episodes


class EpisodeSender:
    """Sends records of episodes, a few at once.

    Args:
        spec: Of the behavior.
        link: Where they go.
        assignment: That asked for them.
        clock: Monotonic seconds.
    """

    def __init__(
        self, spec: BehaviorSpec, link: BehaviorLink, assignment: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._link = link
        self._assignment = assignment
        self._clock = clock
        self._waiting: list[EpisodeRecord] = []
        self._since_seconds = 0.0

    def add(self, episode: EpisodeRecord) -> None:
        """Takes over a record."""
        if not self._waiting:
            self._since_seconds = self._clock()
        self._waiting.append(episode)

    def forget(self) -> None:
        """Gives up what waits: it is of another start of the learner."""
        self._waiting.clear()

    def poll(self, generation: int, agents: int) -> None:
        """Sends what is enough, or waits long enough."""
        waiting = self._waiting
        if waiting and (len(waiting) >= MOST_WAITING or self._clock() - self._since_seconds >= WAIT_SECONDS):
            self.flush(generation, agents)

    def flush(self, generation: int, agents: int) -> None:
        """Sends everything that waits.

        Args:
            generation: Of the policy that acted.
            agents: How many act.
        """
        if not self._waiting:
            return
        episodes, self._waiting = self._waiting, []
        link = self._link
        builder = ChunkBuilder(
            self._spec,
            link.limits,
            agents=agents,
            behavior_index=link.behavior_index,
            team=link.team,
            row_bytes=1,
            masked=False,
        )
        records = EpisodeRecords(episodes, self._spec.grouped, self._assignment)
        for chunk in builder.build_episodes(records, generation=generation):
            link.books.seal(0)
            link.send(chunk)


class EvaluationRound(ABC):
    """One evaluation, with one policy from its first episode to its last.

    Without a limit of episodes it follows the newest policy.

    Args:
        task: What is asked for.
        spec: Of the behavior.
        link: Where records go, and a pinned version comes from.
        clock: Monotonic seconds.

    Attributes:
        task: The same.
        policy: What acts; None before it was chosen.
    """

    def __init__(self, task: Task, spec: BehaviorSpec, link: BehaviorLink, clock: Callable[[], float]) -> None:
        self.task = task
        self.policy: ActingPolicy | None = None
        self._link = link
        self._quota = Quota(task.episodes)
        self._sender = EpisodeSender(spec, link, task.assignment, clock)
        self._notices = Notices()

    @property
    def is_done(self) -> bool:
        """True if all its episodes were played."""
        return self._quota.is_done

    @property
    @abstractmethod
    def agents(self) -> int:
        """Number of agents that act."""

    @abstractmethod
    def _restart(self) -> None:
        """Makes running episodes count no more: the learner was restarted, and the evaluation begins again."""

    def choose(self, newest: ActingPolicy | None) -> bool:
        """Chooses what acts, as far as it must be chosen; returns whether another one acts now.

        A restart of the learner begins the evaluation again, with episodes to come.
        """
        if newest is None:
            return False
        if self.policy is not None and self.policy.generation != newest.generation:
            self.policy = None
            self._sender.forget()
            self._quota = Quota(self.task.episodes)
            self._restart()
        task, before = self.task, self.policy
        if before is not None and (task.episodes or before.version == newest.version):
            return False
        chosen = self._link.pinned(task.generation, task.version) if task.version else newest
        if chosen is None:
            return False
        self.policy = chosen.greedy() if task.deterministic else chosen
        return self.policy is not before

    def poll(self) -> None:
        """Sends what is old enough, or all records once the evaluation is done."""
        if self.policy is not None and not self.is_done:
            self._sender.poll(self.policy.generation, self.agents)
        else:
            self.flush()

    def flush(self) -> None:
        """Sends all records."""
        if self.policy is not None:
            self._sender.flush(self.policy.generation, self.agents)

    def _finish(self, episode: EpisodeRecord, *, is_known: bool = True) -> None:
        """Takes the record of an episode that counts; another one is played for it if its return is not finite."""
        if is_known and episode.is_finite:
            self._quota.end()
            self._sender.add(episode)
            return
        self._quota.lose()
        if (left_out := self._notices.due("episode_not_finite")) is not None:
            _log.warning("episode_not_finite", consequence="another one is played for it", left_out=left_out)


def evaluation_noise(run_seed: int, actor_index: int, spec: BehaviorSpec, agents: int) -> Noise:
    """Returns random numbers for one evaluation: what training draws afterwards does not depend on it."""
    return Noise(
        run_seed,
        OTHER_STREAM + actor_index,
        agents=agents,
        continuous_size=spec.action.continuous_size,
        logits_size=spec.action.mask_size,
    )
