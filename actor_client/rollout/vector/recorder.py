"""Stop 2 of a step's path: turns rows into segments, and segments into chunks."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import SegmentEnd
from rollcast.faults import NOT_FINITE
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle

from actor_client.envs.base import MaskArray, Observations, StepResult
from actor_client.policy.actions import NO_MEMORY, Actions, MemoryForm
from actor_client.rollout.chunks import ChunkBuilder
from actor_client.rollout.link import BehaviorLink
from actor_client.rollout.vector.episodes import VectorEpisodes, join_episodes
from actor_client.rollout.vector.rows import RowLog
from actor_client.rollout.vector.segments import ClosedBlocks, Running, Segments, join_segments

MIN_SLACK_STEPS: Final = 16
"""Steps that the log keeps beyond the longest segment, so that closed segments can wait for others."""

_MOST_SHOWN: Final = 16

Index = NDArray[np.int64]

_log = structlog.get_logger(__name__)


class Recorder:
    """Records the steps of E environments with one agent each, and sends them as chunks.

    A segment ends with its episode, at the time horizon, where a longer one would not fit a chunk, before its oldest
    row passes the policy lag, at a swap if the link says so, and when `cut` is called. Closed segments are sent at the
    first of: enough bytes, enough steps, enough age, a swap, or a call of `flush`.

    Args:
        spec: The behavior's spec.
        link: The link that takes chunks and gives the limits.
        agents: E.
        masked: Whether the environments have action masks.
        clock: Monotonic seconds.

    Attributes:
        horizon: Most rows of a segment: the time horizon, or fewer if a chunk has room for fewer.
        unusable_episodes: Finished episodes that were not reported, because their return is NaN or beyond float32.
        faulty_rows: Rows that were not sent, because their segments have NaN or infinity.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        link: BehaviorLink,
        agents: int,
        *,
        masked: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._link = link
        self._agents = agents
        self._masked = masked
        self._clock = clock
        self._running = Running(agents)
        self._closed = ClosedBlocks()
        self._steps = 0
        self._generation: int | None = None
        self._version = 0
        self._memory = NO_MEMORY
        self._notices = Throttle()
        self.unusable_episodes = 0
        self.faulty_rows = 0
        self._prepare()

    def _prepare(self) -> None:
        """Creates the parts that depend on the learner's settings, which may change; no rows may be open."""
        spec, link, agents, masked = self._spec, self._link, self._agents, self._masked
        probe = RowLog(spec, agents, 1, masked=masked)
        self._row_bytes = probe.row_bytes + self._memory.row_bytes
        self._builder = ChunkBuilder(
            spec,
            link.limits,
            agents=agents,
            behavior_index=link.behavior_index,
            team=link.team,
            row_bytes=probe.row_bytes,
            masked=masked,
            memory=self._memory,
        )
        self.horizon = min(link.time_horizon, self._builder.max_segment_rows)
        target_steps = link.limits.target_chunk_bytes // (self._row_bytes * agents) + 1
        slack_steps = max(MIN_SLACK_STEPS, min(target_steps, self.horizon))
        self._log = RowLog(spec, agents, self.horizon + slack_steps, masked=masked, memory=self._memory)
        self._needed_from = self._steps
        self._next_cut = self._steps + self.horizon

    @property
    def open_steps(self) -> int:
        """Number of recorded rows that are in no chunk yet."""
        return self._running.open_rows(self._steps) + self._closed.rows

    def assign(self, revision: int) -> None:
        """Sets the revision of the environment parameters of episodes that begin from now on."""
        self._running.revision = revision

    def begin(self, seeds: Sequence[int]) -> None:
        """Begins new episodes in all environments; open rows must have been cut or discarded before.

        Args:
            seeds: Seeds of the environments, E entries.
        """
        self.flush()  # Finished episodes must be sent with the previous seeds.
        self._running.begin(self._steps, seeds, self._version)

    def record(
        self,
        observations: Observations,
        masks: MaskArray | None,
        actions: Actions,
        result: StepResult,
        next_masks: MaskArray | None,
    ) -> None:
        """Records one step of all environments, and sends due data.

        Args:
            observations: Observations on which the actions were chosen, [E, *shape] each.
            masks: Allowed choices for them, uint8 [E, sum of branches], or None.
            actions: The chosen actions.
            result: The result of the step.
            next_masks: Allowed choices for `result.observations`.
        """
        now = self._clock()
        ignored = result.ignored
        if ignored is not None and not ignored.any():
            ignored = None
        if ignored is not None:
            self._close_before(ignored, observations, masks, now)
        self._make_room()
        self._log.append(
            self._steps,
            observations=observations,
            masks=masks,
            actions=actions,
            rewards=result.rewards,
            version=self._version,
            taken_at=now,
        )
        self._steps += 1
        produced = self._agents
        if ignored is not None:
            skipped = np.flatnonzero(ignored)
            self._running.skip(skipped, self._steps)
            produced -= len(skipped)
        self._link.books.produced(produced)
        self._running.add(result.rewards, ignored)
        if result.ended:
            self._end_episodes(result, now)
        if self._steps >= self._next_cut:
            self._cut_long(result.observations, next_masks, now)
        if self._closed.blocks and self._is_due(now):
            self.flush()

    def swap(
        self,
        generation: int,
        version: int,
        observations: Observations,
        masks: MaskArray | None,
        memory: MemoryForm = NO_MEMORY,
    ) -> None:
        """Switches to another policy for the next step; sends closed segments.

        Rows of another generation are discarded; the memory may have another form.

        Args:
            generation: Its generation.
            version: Its version.
            observations: The first observations that it acts on, [E, *shape] each; they end the segments that are cut.
            masks: Allowed choices for them, or None.
            memory: Form of an agent's memory.
        """
        renewed = generation != self._generation
        if renewed:
            self._memory = memory
            self.discard("generation")
        else:
            self._cut_old(version, observations, masks)
            self.flush()
        self._generation, self._version = generation, version
        self._running.swap(self._steps, version, everywhere=renewed)

    def cut(self, observations: Observations, masks: MaskArray | None) -> None:
        """Ends all open segments and sends everything, because the actor is about to stop.

        Args:
            observations: The last observations, [E, *shape] each.
            masks: Allowed choices for them, or None.
        """
        self._close_cut(np.flatnonzero(self._running.starts < self._steps), observations, masks, self._clock())
        self.flush()

    def end_round(self, number: int, observations: Observations, masks: MaskArray | None) -> None:
        """Ends all open segments, sends everything, and reports the round of lock-step as complete.

        Args:
            number: Number of the round.
            observations: The last observations, [E, *shape] each.
            masks: Allowed choices for them, or None.
        """
        self.cut(observations, masks)
        link = self._link
        link.books.seal(0)
        link.send(
            Chunk(
                generation=self._generation or 0,
                behavior_index=link.behavior_index,
                team=link.team,
                agents=self._agents,
                lockstep_round=number,
            )
        )

    def flush(self) -> None:
        """Sends all closed segments and the episodes that ended with them."""
        blocks = self._closed.take()
        if not blocks:
            return
        segments = self._good(join_segments(blocks))
        episodes = self._finite(join_episodes(blocks, self._running.seeds))
        generation = self._generation or 0
        for chunk in self._builder.build(self._log, segments, episodes, generation=generation, now=self._clock()):
            self._link.books.seal(chunk.rows)
            self._link.send(chunk)

    def _good(self, segments: Segments) -> Segments:
        """Drops, and counts, the segments for which the learner would refuse the whole chunk.

        A chunk of such segments alone is sent: the learner says what is wrong, and many of them end the actor.
        """
        good = self._log.are_finite(segments)
        if good.all() or not good.any():
            return segments
        rows = int(segments.lengths[~good].sum())
        self._link.books.discard(NOT_FINITE, rows)
        self.faulty_rows += rows
        if (left_out := self._notices.admit(NOT_FINITE)) is not None:
            _log.warning(
                NOT_FINITE,
                rows=self.faulty_rows,
                envs=np.unique(segments.envs[~good]).tolist()[:_MOST_SHOWN],
                consequence="parts of episodes with NaN or infinity in an observation or a reward are not trained",
                left_out=left_out,
            )
        return segments.part(np.flatnonzero(good))

    def _finite(self, episodes: VectorEpisodes | None) -> VectorEpisodes | None:
        """Drops, and counts, the records for which the learner would refuse the whole chunk."""
        if episodes is None:
            return None
        kept = episodes.finite()
        if (unusable := len(episodes) - len(kept)) > 0:
            self.unusable_episodes += unusable
            if (left_out := self._notices.admit("episode_not_finite")) is not None:
                _log.warning(
                    "episode_not_finite",
                    unusable_episodes=self.unusable_episodes,
                    consequence="its return is not reported",
                    left_out=left_out,
                )
        return kept

    def discard(self, reason: str) -> None:
        """Discards all rows that are in no chunk yet, and the records of their episodes; running episodes continue.

        The link's limits are read again, because the session or the learner has changed.

        Args:
            reason: The reason in the books.
        """
        rows = self._running.discard(self._steps) + self._closed.rows
        self._closed.take()
        if rows:
            self._link.books.discard(reason, rows)
        self._prepare()

    def discard_open(self, reason: str) -> int:
        """Discards the rows of open segments only: the environments failed, but closed segments are valid.

        Args:
            reason: The reason in the books.

        Returns:
            The number of rows.
        """
        rows = self._running.discard(self._steps)
        if rows:
            self._link.books.discard(reason, rows)
        return rows

    def _is_due(self, now: float) -> bool:
        closed, limits = self._closed, self._link.limits
        size = closed.rows * self._row_bytes + closed.segments * self._builder.segment_bytes
        return (
            size >= limits.target_chunk_bytes
            or 0 < limits.max_chunk_steps <= closed.rows
            or now - closed.since >= limits.max_chunk_age_seconds
        )

    def _make_room(self) -> None:
        """Ensures that the next step overwrites no row that is needed."""
        if self._steps - self._needed_from < self._log.capacity:
            return
        first_open = int(self._running.starts.min())
        if self._closed.blocks and self._steps - self._closed.first_step >= self._log.capacity:
            self.flush()
        self._needed_from = min(first_open, self._closed.first_step) if self._closed.blocks else first_open

    def _end_episodes(self, result: StepResult, now: float) -> None:
        block = self._running.finish(
            np.array(result.ended, np.int64),
            self._steps,
            ends=result.ends,
            finals=result.final_observations or [],
            final_masks=result.final_masks,
            rewards=result.rewards,
            version=self._version,
            infos=result.infos,
        )
        self._closed.add(block, now)

    def _cut_long(self, observations: Observations, masks: MaskArray | None, now: float) -> None:
        starts = self._running.starts
        self._close_cut(np.flatnonzero(starts <= self._steps - self.horizon), observations, masks, now)
        self._next_cut = int(starts.min()) + self.horizon

    def _cut_old(self, version: int, observations: Observations, masks: MaskArray | None) -> None:
        """Ends segments whose oldest row would exceed the lag at the next version."""
        if not (self._link.cut_at_swap or self._link.max_policy_lag):
            return
        envs = np.flatnonzero(self._running.starts < self._steps)
        if not self._link.cut_at_swap:
            oldest = self._log.versions(self._running.starts[envs]).astype(np.int64)
            envs = envs[version - oldest >= self._link.max_policy_lag]
        self._close_cut(envs, observations, masks, self._clock())

    def _close_before(
        self, ignored: NDArray[np.bool_], observations: Observations, masks: MaskArray | None, now: float
    ) -> None:
        """Ends open segments of environments that ignore an action within an episode."""
        self._close_cut(np.flatnonzero(ignored & (self._running.starts < self._steps)), observations, masks, now)

    def _close_cut(self, envs: Index, observations: Observations, masks: MaskArray | None, now: float) -> None:
        if not len(envs):
            return
        finals = [values[envs] for values in observations]
        final_masks = None if masks is None else masks[envs]
        ends = np.full(len(envs), SegmentEnd.CUT, np.uint8)
        self._closed.add(self._running.cut(envs, self._steps, ends, finals, final_masks), now)
