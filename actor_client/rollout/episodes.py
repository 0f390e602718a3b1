"""Returns of running episodes, and records of finished ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from actor_client.envs.base import FloatArray, Infos

MAX_INFO_COLUMNS: Final = 64
"""A chunk may have 256 columns, of which 64 observations take 128."""

Index = NDArray[np.int64]
UIntArray = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class EpisodeRecords:
    """m finished episodes; all arrays [m].

    Attributes:
        envs: Environment of each.
        episodes: Number in its environment.
        returns: Sum of rewards, from float64.
        lengths: Steps.
        ends: `SegmentEnd`, TERMINATED or TRUNCATED.
        last_rewards: Reward of the last step.
        first_versions: Version that chose the first action.
        last_versions: Version that chose the last one.
        seeds: Seed that the environment was made with.
        infos: Numbers that the environment reported at the end.
    """

    envs: Index
    episodes: Index
    returns: FloatArray
    lengths: Index
    ends: NDArray[np.uint8]
    last_rewards: FloatArray
    first_versions: UIntArray
    last_versions: UIntArray
    seeds: UIntArray
    infos: Sequence[Infos]

    def __len__(self) -> int:
        return len(self.envs)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the EPISODE columns, names and types as trajectory.proto has them."""
        names = sorted({name for info in self.infos for name in info})[:MAX_INFO_COLUMNS]
        columns: dict[str, NDArray[Any]] = {
            "episode/agent": self.envs.astype(np.uint64),
            "episode/env": self.envs.astype(np.uint32),
            "episode/episode": self.episodes.astype(np.uint64),
            "episode/return": self.returns,
            "episode/length": self.lengths.astype(np.uint32),
            "episode/end": self.ends,
            "episode/last_reward": self.last_rewards,
            "episode/first_version": self.first_versions,
            "episode/last_version": self.last_versions,
            "episode/seed": self.seeds,
        }
        for name in names:
            columns[f"info/{name}"] = np.array([info.get(name, np.nan) for info in self.infos], np.float32)
        return columns

    def part(self, rows: slice) -> "EpisodeRecords":
        """Returns some of the records."""
        return EpisodeRecords(
            self.envs[rows],
            self.episodes[rows],
            self.returns[rows],
            self.lengths[rows],
            self.ends[rows],
            self.last_rewards[rows],
            self.first_versions[rows],
            self.last_versions[rows],
            self.seeds[rows],
            self.infos[rows],
        )


def join(blocks: Sequence[EpisodeRecords]) -> EpisodeRecords:
    """Returns all records of the blocks, at least one block, in order."""
    if len(blocks) == 1:
        return blocks[0]
    return EpisodeRecords(
        np.concatenate([block.envs for block in blocks]),
        np.concatenate([block.episodes for block in blocks]),
        np.concatenate([block.returns for block in blocks]),
        np.concatenate([block.lengths for block in blocks]),
        np.concatenate([block.ends for block in blocks]),
        np.concatenate([block.last_rewards for block in blocks]),
        np.concatenate([block.first_versions for block in blocks]),
        np.concatenate([block.last_versions for block in blocks]),
        np.concatenate([block.seeds for block in blocks]),
        [info for block in blocks for info in block.infos],
    )


class RunningEpisodes:
    """Return and first version of the running episode of each of E environments.

    Args:
        agents: E.
    """

    __slots__ = ("_first_versions", "_returns", "_seeds")

    def __init__(self, agents: int) -> None:
        self._returns = np.zeros(agents, np.float64)
        self._first_versions = np.zeros(agents, np.uint64)
        self._seeds = np.zeros(agents, np.uint64)

    def begin(self, seeds: Sequence[int], version: int) -> None:
        """Begins a new episode everywhere.

        Args:
            seeds: Of the environments, E entries.
            version: The policy that will act.
        """
        self._returns[:] = 0.0
        self._first_versions[:] = version
        self._seeds[:] = seeds

    def swap(self, version: int, fresh: NDArray[np.bool_]) -> None:
        """Another policy acts from now on.

        Args:
            version: Its version.
            fresh: bool [E], where the first action of the episode is its to choose.
        """
        self._first_versions[fresh] = version

    def add(self, rewards: FloatArray, ignored: NDArray[np.bool_] | None) -> None:
        """Adds the rewards of one step, float32 [E], but for ignored rows."""
        if ignored is None:
            self._returns += rewards
        else:
            np.add(self._returns, rewards, out=self._returns, where=~ignored)

    def finish(
        self,
        envs: Index,
        *,
        ends: NDArray[np.uint8],
        episodes: Index,
        lengths: Index,
        last_rewards: FloatArray,
        version: int,
        infos: Sequence[Infos],
    ) -> EpisodeRecords:
        """Returns the records of episodes that ended, and begins the next ones."""
        records = EpisodeRecords(
            envs=envs,
            episodes=episodes,
            returns=self._returns[envs].astype(np.float32),
            lengths=lengths,
            ends=ends,
            last_rewards=last_rewards,
            first_versions=self._first_versions[envs],
            last_versions=np.full(len(envs), version, np.uint64),
            seeds=self._seeds[envs],
            infos=infos,
        )
        self._returns[envs] = 0.0
        self._first_versions[envs] = version
        return records
