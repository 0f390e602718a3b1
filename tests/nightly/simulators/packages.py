"""Environments of packages that start processes; named as `tests.nightly.simulators.packages:callable`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def _cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def doom() -> Any:
    """Returns VizDoom, whose game is a process, with small pictures."""
    importlib.import_module("vizdoom.gymnasium_wrapper")
    env = gymnasium.make("VizdoomBasic-v1", frame_skip=4)
    small = spaces.Box(0, 255, (30, 40, 3), np.uint8)
    return gymnasium.wrappers.TransformObservation(
        env, lambda seen: np.ascontiguousarray(seen["screen"][::8, ::8]), small
    )


def traffic() -> Any:
    """Returns a crossing of SUMO-RL; each episode begins with another process."""
    os.environ.setdefault("SUMO_HOME", importlib.import_module("sumo").SUMO_HOME)
    package = importlib.import_module("sumo_rl")
    files = str(Path(package.__file__ or "").parent / "nets" / "single-intersection" / "single-intersection")
    return package.SumoEnvironment(
        net_file=f"{files}.net.xml",
        route_file=f"{files}.rou.xml",
        single_agent=True,
        num_seconds=1000,
        sumo_warnings=False,
    )


class Subprocess(gymnasium.Env[Any, Any]):
    """CartPole in a process of stable-baselines3.

    Args:
        start: How it starts: `fork` or `forkserver`.
    """

    def __init__(self, start: str) -> None:
        make: Callable[..., Any] = importlib.import_module("stable_baselines3.common.vec_env").SubprocVecEnv
        self._copies = make([_cartpole], start_method=start)
        self.observation_space, self.action_space = self._copies.observation_space, self._copies.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; the package itself has begun all but the first."""
        del options
        if seed is not None:
            self._copies.seed(seed)
        return self._copies.reset()[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step."""
        seen, rewards, ends, infos = self._copies.step([action])
        is_late = bool(infos[0].get("TimeLimit.truncated", False))
        last = infos[0]["terminal_observation"] if ends[0] else seen[0]
        return last, float(rewards[0]), bool(ends[0]) and not is_late, is_late, {}

    def close(self) -> None:
        """Ends the process."""
        self._copies.close()


def concatenated(num_envs: int) -> Any:
    """Returns copies in processes of SuperSuit."""
    return importlib.import_module("supersuit").gym_vec_env_v0(_cartpole(), num_envs, multiprocessing=True)


def grids(num_envs: int) -> Any:
    """Returns copies of MiniGrid in processes of Gymnasium."""
    wrapper = importlib.import_module("minigrid.wrappers").ImgObsWrapper
    return gymnasium.vector.AsyncVectorEnv([lambda: wrapper(gymnasium.make("MiniGrid-Empty-5x5-v0"))] * num_envs)
