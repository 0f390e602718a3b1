"""Running episodes, open segments and closed segments of environments that are stepped together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from actor_client.envs.base import FloatArray, Infos, MaskArray, Observations

Index = NDArray[np.int64]

START: Final = 0
"""First step of the open segment."""
EPISODE: Final = 1
"""Number of the running episode in its environment."""
EPISODE_START: Final = 2
"""First step of the running episode, advanced by each skipped step."""
FIRST_VERSION: Final = 3
"""Version that chose the first action of the running episode."""
REVISION: Final = 4
"""Revision of the environment parameters with which the running episode began."""
_COLUMNS: Final = 5


class Block(NamedTuple):
    """m segments that were closed at the same time. It is a tuple because early in training one is made at each step.

    Attributes:
        envs: Environment of each segment, int64 [m].
        state: Rows of `Running.state` before the end, int64 [m, 5].
        now: Number of steps so far, which is the first step after them.
        ends: `SegmentEnd`, uint8 [m].
        finals: Observations after the last row, [m, *shape] each.
        final_masks: uint8 [m, sum of branches], or None.
        episodes: Results of the ended episodes; None for segments that were cut.
    """

    envs: Index
    state: Index
    now: int
    ends: NDArray[np.uint8]
    finals: Observations
    final_masks: MaskArray | None
    episodes: "EndedEpisodes | None"


class EndedEpisodes(NamedTuple):
    """Results of m finished episodes.

    Attributes:
        returns: Sums of rewards, float64 [m].
        last_rewards: float32 [m].
        last_version: Version that chose the last actions.
        infos: Numbers reported by the environments, m entries.
    """

    returns: NDArray[np.float64]
    last_rewards: FloatArray
    last_version: int
    infos: Sequence[Infos]


class Running:
    """State of E environments, one row each, so that several rows are read and updated by one operation.

    Steps are counted from 0 over the life of the recorder; `now` is the number of steps so far, so an environment
    whose segment began at `now` has no open rows.

    Args:
        agents: E.

    Attributes:
        state: int64 [E, 5], by START, EPISODE, EPISODE_START, FIRST_VERSION and REVISION.
        starts: Its column START, a view [E].
        seeds: Seeds of the environments, uint64 [E].
        revision: Revision of the environment parameters of episodes that begin now.
    """

    def __init__(self, agents: int) -> None:
        self.state = np.zeros((agents, _COLUMNS), np.int64)
        self.starts = self.state[:, START]
        self.seeds = np.zeros(agents, np.uint64)
        self.revision = 0
        self._returns = np.zeros(agents, np.float64)

    def begin(self, now: int, seeds: Sequence[int], version: int) -> None:
        """Begins new episodes in all environments.

        Args:
            now: Number of steps so far.
            seeds: Seeds of the environments, E entries.
            version: Version of the policy that will act.
        """
        self._renew(self.state, now, version)
        self._returns[:] = 0.0
        self.seeds[:] = seeds

    def open_rows(self, now: int) -> int:
        """Returns the total number of open rows."""
        return now * len(self.starts) - int(self.starts.sum())

    def add(self, rewards: FloatArray, ignored: NDArray[np.bool_] | None) -> None:
        """Adds the rewards of one step, float32 [E], except for ignored rows."""
        if ignored is None:
            self._returns += rewards
        else:
            np.add(self._returns, rewards, out=self._returns, where=~ignored)

    def skip(self, envs: Index, now: int) -> None:
        """Excludes the last step of environments without other open rows; it is not counted."""
        self.state[envs, START] = now
        self.state[envs, EPISODE_START] += 1

    def swap(self, now: int, version: int, *, everywhere: bool) -> None:
        """Sets the acting version, also as the first version of episodes without an action.

        Args:
            now: Number of steps so far.
            version: The acting version.
            everywhere: Use `version` as the first version of all running episodes, because its generation is new.
        """
        self.state[everywhere | (self.state[:, EPISODE_START] == now), FIRST_VERSION] = version

    def discard(self, now: int) -> int:
        """Discards all open rows and returns their number; episodes continue."""
        rows = self.open_rows(now)
        self.starts[:] = now
        return rows

    def cut(
        self, envs: Index, now: int, ends: NDArray[np.uint8], finals: Observations, final_masks: MaskArray | None
    ) -> Block:
        """Ends open segments, each with at least one row; their episodes continue. See `Block` for the arguments."""
        block = Block(envs, self.state[envs], now, ends, finals, final_masks, None)
        self.starts[envs] = now
        return block

    def finish(
        self,
        envs: Index,
        now: int,
        *,
        ends: NDArray[np.uint8],
        finals: Observations,
        final_masks: MaskArray | None,
        rewards: FloatArray,
        version: int,
        infos: Sequence[Infos],
    ) -> Block:
        """Ends episodes with their open segments, and begins the next ones.

        Args:
            envs: The environments, int64 [m].
            now: Number of steps so far.
            ends: See `Block`.
            finals: See `Block`.
            final_masks: See `Block`.
            rewards: Rewards of the last step, float32 [E].
            version: Version that chose its actions.
            infos: See `EndedEpisodes`.
        """
        state = self.state[envs]
        ended = EndedEpisodes(self._returns[envs], rewards[envs], version, infos)
        self._returns[envs] = 0.0
        renewed = state.copy()
        self._renew(renewed, now, version)
        self.state[envs] = renewed
        return Block(envs, state, now, ends, finals, final_masks, ended)

    def _renew(self, state: Index, now: int, version: int) -> None:
        state[:, START] = now
        state[:, EPISODE] += 1
        state[:, EPISODE_START] = now
        state[:, FIRST_VERSION] = version
        state[:, REVISION] = self.revision


class ClosedBlocks:
    """Closed segments that wait for a chunk.

    Attributes:
        blocks: The blocks, in the order in which they were closed.
        rows: Number of rows.
        segments: Number of segments.
        since: Closing time of the oldest block, in monotonic seconds; undefined without blocks.
        first_step: First step that any block needs; undefined without blocks.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.rows = 0
        self.segments = 0
        self.since = 0.0
        self.first_step = 0

    def add(self, block: Block, now_seconds: float) -> None:
        """Adds segments that were just closed."""
        # In Python: most blocks have few segments, and one numpy reduction costs as much as thirty of them.
        starts = block.state[:, START].tolist()
        first_step = min(starts)
        if not self.blocks:
            self.since = now_seconds
            self.first_step = first_step
        elif first_step < self.first_step:
            self.first_step = first_step
        self.blocks.append(block)
        self.rows += block.now * len(starts) - sum(starts)
        self.segments += len(starts)

    def take(self) -> list[Block]:
        """Removes and returns all blocks."""
        blocks, self.blocks = self.blocks, []
        self.rows = 0
        self.segments = 0
        return blocks


_ARRAYS: Final = ("envs", "starts", "lengths", "ends", "episodes", "first_steps")


@dataclass(frozen=True, slots=True)
class Segments:
    """S closed segments.

    Attributes:
        envs: Environment of each segment, int64 [S].
        starts: First step, int64 [S].
        lengths: Numbers of rows, int64 [S], at least 1.
        ends: `SegmentEnd`, uint8 [S].
        episodes: Number of the episode in its environment, int64 [S].
        first_steps: Index of the first row in its episode, int64 [S].
        finals: Observations after the last row, [S, *shape] each.
        final_masks: uint8 [S, sum of branches], or None.
    """

    envs: Index
    starts: Index
    lengths: Index
    ends: NDArray[np.uint8]
    episodes: Index
    first_steps: Index
    finals: list[NDArray[Any]]
    final_masks: MaskArray | None

    def __len__(self) -> int:
        return len(self.envs)

    @property
    def bundles(self) -> None:
        """None: environments are independent, so any two segments may be separated."""
        return

    def part(self, rows: slice | Index) -> "Segments":
        """Returns some of the segments."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        masks = None if self.final_masks is None else self.final_masks[rows]
        return Segments(**columns, finals=[values[rows] for values in self.finals], final_masks=masks)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the SEGMENT columns as in trajectory.proto; an agent has its environment's number."""
        return {
            "length": self.lengths.astype(np.uint32),
            "end": self.ends,
            "env": self.envs.astype(np.uint32),
            "agent": self.envs.astype(np.uint64),
            "episode": self.episodes.astype(np.uint64),
            "first_step": self.first_steps.astype(np.uint32),
        }

    def row_indices(self) -> tuple[Index, Index]:
        """Returns step and environment of each row, int64 [N] each, segment after segment."""
        ends = np.cumsum(self.lengths)
        steps = np.repeat(self.starts - (ends - self.lengths), self.lengths) + np.arange(ends[-1])
        return steps, np.repeat(self.envs, self.lengths)


def join_segments(blocks: Sequence[Block]) -> Segments:
    """Returns all segments of the blocks, at least one, in order."""
    state = np.concatenate([block.state for block in blocks])
    nows = np.repeat([block.now for block in blocks], [len(block.envs) for block in blocks])
    masks = [block.final_masks for block in blocks if block.final_masks is not None]
    return Segments(
        envs=np.concatenate([block.envs for block in blocks]),
        starts=state[:, START],
        lengths=nows - state[:, START],
        ends=np.concatenate([block.ends for block in blocks]),
        episodes=state[:, EPISODE],
        first_steps=state[:, START] - state[:, EPISODE_START],
        finals=[np.concatenate(values) for values in zip(*(block.finals for block in blocks), strict=True)],
        final_masks=np.concatenate(masks) if masks else None,
    )
