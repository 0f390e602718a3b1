"""Records of finished episodes of environments that are stepped together."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from actor_client.envs.base import FloatArray, Infos
from actor_client.rollout.episodes import LARGEST_RETURN, info_columns, info_names
from actor_client.rollout.vector.segments import EPISODE, EPISODE_START, FIRST_VERSION, REVISION, Block

_COLUMN_BYTES: Final = 8 + 4 + 8 + 4 + 4 + 1 + 4 + 8 + 8 + 8 + 8

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorEpisodes:
    """m finished episodes; all arrays [m].

    Attributes:
        envs: Environment of each episode.
        episodes: Number of each in its environment.
        returns: Sums of rewards, added in float64.
        lengths: Numbers of steps.
        ends: `SegmentEnd`, TERMINATED or TRUNCATED.
        last_rewards: Reward of the last step.
        first_versions: Version that chose the first action.
        last_versions: Version that chose the last action.
        seeds: Seed that the environment began with.
        revisions: Revision of the environment parameters that it began with; 0 = none reached the environment.
        infos: Numbers that the environment reported at the end.
    """

    envs: Index
    episodes: Index
    returns: NDArray[np.float64]
    lengths: Index
    ends: NDArray[np.uint8]
    last_rewards: FloatArray
    first_versions: Index
    last_versions: Index
    seeds: NDArray[np.uint64]
    revisions: Index
    infos: Sequence[Infos]

    def __len__(self) -> int:
        return len(self.envs)

    @property
    def column_bytes(self) -> int:
        """Bytes per row of the columns that every record has."""
        return _COLUMN_BYTES

    @property
    def opponents(self) -> tuple[str, ...]:
        """Names of opponents; these environments have none."""
        return ()

    @property
    def info_names(self) -> list[str]:
        """Names of the numbers that become columns."""
        return info_names(self.infos)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the EPISODE columns, with names and types as in trajectory.proto."""
        columns: dict[str, NDArray[Any]] = {
            "episode/agent": self.envs.astype(np.uint64),
            "episode/env": self.envs.astype(np.uint32),
            "episode/episode": self.episodes.astype(np.uint64),
            "episode/return": self.returns.astype(np.float32),
            "episode/length": self.lengths.astype(np.uint32),
            "episode/end": self.ends,
            "episode/last_reward": self.last_rewards,
            "episode/first_version": self.first_versions.astype(np.uint64),
            "episode/last_version": self.last_versions.astype(np.uint64),
            "episode/seed": self.seeds,
        }
        if self.revisions.any():
            columns["episode/settings_revision"] = self.revisions.astype(np.uint64)
        return columns | info_columns(self.infos)

    def finite(self) -> "VectorEpisodes":
        """Returns the records whose returns are finite in float32.

        One NaN reward makes the return NaN. The record may travel in a later chunk than the faulty row, and that chunk
        with its good rows would be refused too.
        """
        good = (np.abs(self.returns) <= LARGEST_RETURN) & np.isfinite(self.last_rewards)
        if good.all():
            return self
        return self._chosen(np.flatnonzero(good))

    def _chosen(self, rows: Index) -> "VectorEpisodes":
        columns: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        infos = columns.pop("infos")
        chosen = {name: values[rows] for name, values in columns.items()}
        return VectorEpisodes(**chosen, infos=[infos[row] for row in rows.tolist()])

    def part(self, rows: slice) -> "VectorEpisodes":
        """Returns some of the records."""
        return self._chosen(np.arange(len(self))[rows])


def join_episodes(blocks: Sequence[Block], seeds: NDArray[np.uint64]) -> VectorEpisodes | None:
    """Returns the records of all episodes that ended in the blocks, in order; None if none did.

    Args:
        blocks: Closed segments.
        seeds: Seeds of the environments, uint64 [E].
    """
    ended = [(block, block.episodes) for block in blocks if block.episodes is not None]
    if not ended:
        return None
    counts = [len(block.envs) for block, _ in ended]
    state = np.concatenate([block.state for block, _ in ended])
    envs = np.concatenate([block.envs for block, _ in ended])
    return VectorEpisodes(
        envs=envs,
        episodes=state[:, EPISODE],
        returns=np.concatenate([episodes.returns for _, episodes in ended]),
        lengths=np.repeat([block.now for block, _ in ended], counts) - state[:, EPISODE_START],
        ends=np.concatenate([block.ends for block, _ in ended]),
        last_rewards=np.concatenate([episodes.last_rewards for _, episodes in ended]),
        first_versions=state[:, FIRST_VERSION],
        last_versions=np.repeat([episodes.last_version for _, episodes in ended], counts),
        seeds=seeds[envs],
        revisions=state[:, REVISION],
        infos=[info for _, episodes in ended for info in episodes.infos],
    )
