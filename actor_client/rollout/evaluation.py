"""Evaluation on the actor: chooses the episodes that count, and sends their records to the learner.

Only the records are sent. Steps of an evaluation are not recorded, so they are in no books and need no credit.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import structlog
from rollcast.chunks import Chunk
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle

from actor_client.policy.actions import ActingPolicy
from actor_client.policy.noise import Noise
from actor_client.rollout.assignment import Task
from actor_client.rollout.chunks import CHUNK_OVERHEAD_BYTES, COLUMN_OVERHEAD_BYTES, ChunkBuilder
from actor_client.rollout.episodes import EpisodeRecord, EpisodeRecords, FinishedGame
from actor_client.rollout.link import BehaviorLink

WAIT_SECONDS: Final = 0.5
"""Longest time that records wait for others before they are sent, in seconds."""
MOST_WAITING: Final = 256
"""Number of waiting records at which they are sent at once."""
OTHER_STREAM: Final = 2**32
"""Added to numbers from which seeds derive, so that every evaluation has its own, repeatable random numbers."""

OPPONENT_STREAM: Final = 2 * OTHER_STREAM
"""The same for opponents."""

_log = structlog.get_logger(__name__)


class Quota:
    """Chooses the episodes that count: the first ones to *begin*.

    Among concurrent episodes the short ones end first, so counting the first ones to end would bias the mean.

    Args:
        episodes: Number of episodes; 0 = all.
    """

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes
        self._begun = 0
        self._ended = 0

    @property
    def is_done(self) -> bool:
        """True if all episodes that count have ended."""
        return 0 < self._episodes <= self._ended

    def begin(self) -> bool:
        """Notes the start of an episode; returns whether it counts."""
        counts = not self._episodes or self._begun < self._episodes
        self._begun += counts
        return counts

    def end(self) -> None:
        """Notes the end of an episode that counts."""
        self._ended += 1

    def lose(self, episodes: int = 1) -> None:
        """Notes counted episodes that will never end or cannot be reported; others replace them."""
        self._begun -= episodes


class EpisodeSender:
    """Sends records of episodes in small batches.

    Args:
        spec: The behavior's spec.
        link: The link that takes them.
        assignment: Number of the evaluation's assignment; None for episodes of opponents in training.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        link: BehaviorLink,
        assignment: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._link = link
        self._assignment = assignment
        self._clock = clock
        self._waiting: list[EpisodeRecord] = []
        self._game: tuple[FinishedGame, int] | None = None
        self._since_seconds = 0.0

    def add(self, episode: EpisodeRecord) -> None:
        """Takes over a record."""
        if not self._waiting:
            self._since_seconds = self._clock()
        self._waiting.append(episode)

    def show(self, game: FinishedGame, match: int) -> None:
        """Takes over a game for people to read; the newest one is sent with the waiting records.

        Args:
            game: The game, of which a record was added.
            match: Number of its match.
        """
        self._game = game, match

    def forget(self) -> None:
        """Drops waiting records, which belong to another start of the learner."""
        self._waiting.clear()
        self._game = None

    def poll(self, generation: int, agents: int) -> None:
        """Sends waiting records if there are enough of them or they are old enough."""
        waiting = self._waiting
        if waiting and (len(waiting) >= MOST_WAITING or self._clock() - self._since_seconds >= WAIT_SECONDS):
            self.flush(generation, agents)

    def flush(self, generation: int, agents: int) -> None:
        """Sends all waiting records.

        Args:
            generation: Generation of the policy that acted.
            agents: Number of agents that act.
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
        chunks = list(builder.build_episodes(records, generation=generation))
        self._add_game(chunks[-1])
        for chunk in chunks:
            link.books.seal(0)
            link.send(chunk)

    def _add_game(self, chunk: Chunk) -> None:
        """Adds the newest game to a chunk, if it fits."""
        found, self._game = self._game, None
        record = None if found is None else found[0].record(found[1])
        if record is None:
            return
        used = CHUNK_OVERHEAD_BYTES + sum(COLUMN_OVERHEAD_BYTES + values.nbytes for values in chunk.columns.values())
        if used + record.most_bytes <= self._link.limits.max_chunk_bytes:
            chunk.game_record = record


class EvaluationRound(ABC):
    """One evaluation, with one policy from its first episode to its last.

    Without a limit of episodes, an evaluation always uses the newest policy.

    Args:
        task: The task.
        spec: The behavior's spec.
        link: The link that takes records and provides a pinned version.
        clock: Monotonic seconds.

    Attributes:
        task: The task.
        policy: The acting policy; None before it is chosen.
    """

    def __init__(self, task: Task, spec: BehaviorSpec, link: BehaviorLink, clock: Callable[[], float]) -> None:
        self.task = task
        self.policy: ActingPolicy | None = None
        self._link = link
        self._quota = Quota(task.episodes)
        self._sender = EpisodeSender(spec, link, task.assignment, clock)
        self._notices = Throttle()

    @property
    def is_done(self) -> bool:
        """True if all its episodes have been played."""
        return self._quota.is_done

    @property
    @abstractmethod
    def agents(self) -> int:
        """Number of agents that act."""

    @abstractmethod
    def _restart(self) -> None:
        """Excludes running episodes: the learner was restarted, and the evaluation begins again."""

    def choose(self, newest: ActingPolicy | None) -> bool:
        """Chooses the acting policy if necessary; returns whether it changed.

        After a restart of the learner the evaluation begins again with new episodes.
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
        """Sends old records, or all records once the evaluation is complete."""
        if self.policy is not None and not self.is_done:
            self._sender.poll(self.policy.generation, self.agents)
        else:
            self.flush()

    def flush(self) -> None:
        """Sends all records."""
        if self.policy is not None:
            self._sender.flush(self.policy.generation, self.agents)

    def _finish(self, episode: EpisodeRecord, *, is_known: bool = True) -> None:
        """Takes the record of an episode that counts; if its return is not finite, another episode replaces it."""
        if is_known and episode.is_finite:
            self._quota.end()
            self._sender.add(episode)
            return
        self._quota.lose()
        if (left_out := self._notices.admit("episode_not_finite")) is not None:
            _log.warning("episode_not_finite", consequence="another episode replaces it", left_out=left_out)


def evaluation_noise(run_seed: int, actor_index: int, spec: BehaviorSpec, agents: int) -> Noise:
    """Returns random numbers for one evaluation, so that it does not affect later draws of training."""
    return Noise(
        run_seed,
        OTHER_STREAM + actor_index,
        agents=agents,
        continuous_size=spec.action.continuous_size,
        logits_size=spec.action.mask_size,
    )
