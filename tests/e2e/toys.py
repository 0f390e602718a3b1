"""Environments for actors of their own, named as `tests.e2e.toys:callable`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.actor_client.envs.toys import Masked, Toy

MODULE = "tests.e2e.toys"


def named(function: str) -> str:
    """Returns what `--env` takes."""
    return f"{MODULE}:{function}"


def dict_space() -> Toy:
    """Shows a Dict."""
    parts: dict[str, spaces.Space[Any]] = {
        "near": spaces.Box(-1.0, 1.0, (3,), np.float32),
        "far": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    }
    return Toy(spaces.Dict(parts))


def tuple_space() -> Toy:
    """Shows a Tuple."""
    return Toy(spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3))))


def image_space() -> Toy:
    """Shows a picture: rows, columns, colours."""
    return Toy(spaces.Box(0, 255, (32, 24, 3), np.uint8))


def multi_discrete_space() -> Toy:
    """Shows categories, and takes several choices."""
    return Toy(spaces.MultiDiscrete([2, 3, 4]), spaces.MultiDiscrete([3, 2]))


def multi_binary_space() -> Toy:
    """Shows bits, and takes bits."""
    return Toy(spaces.MultiBinary(6), spaces.MultiBinary(3))


def discrete_space() -> Toy:
    """Shows a category."""
    return Toy(spaces.Discrete(5, start=-2), spaces.Discrete(3, start=1))


def box_space() -> Toy:
    """Shows numbers, and takes numbers; one of them without bounds."""
    low, high = np.array([-2.0, -np.inf], np.float32), np.array([2.0, np.inf], np.float32)
    return Toy(spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(low, high, dtype=np.float32))


def wide() -> Toy:
    """Shows more numbers than the environment that the run began with."""
    return Toy(spaces.Box(-1.0, 1.0, (5,), np.float32))


def raising_when_made() -> Toy:
    """Cannot be made."""
    raise OSError("the simulator is not installed\nand more than one line of it")


def raising_at_steps() -> Toy:
    """Can be made and reset, and never stepped."""
    return Toy(step_fails=tuple(range(100)))


def hanging() -> Toy:
    """Takes some steps, and never returns from the next one."""

    class Hanging(Toy):
        def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
            if len(self.actions) >= 5:
                time.sleep(10**6)
            return super().step(action)

    return Hanging()


def returning(folder: str, made_after: int, masked: bool = False) -> Toy:
    """Fails amid its steps the first time, cannot be made for a while, and then is well, or has masks that it had not.

    Args:
        folder: where each call leaves a file, so that the next one knows.
        made_after: calls that raise.
        masked: whether the last one has masks.
    """
    calls = len(list(Path(folder).iterdir()))
    Path(folder, str(calls)).touch()
    if 0 < calls <= made_after:
        raise OSError("the simulator's port is busy")
    choices = spaces.Discrete(3, start=10)
    if masked and calls:
        return Masked()
    return Toy(action_space=choices, step_fails=() if calls else (300,))


class Recording(gymnasium.Env[Any, Any]):
    """CartPole that writes down its first steps, in a file named after the process.

    Args:
        folder: of the file.
        steps: how many.
    """

    def __init__(self, folder: str, steps: int = 40) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self._file = Path(folder) / f"{os.getpid()}.json"
        self._steps = steps
        self._rows: list[list[float]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observation, infos = self._env.reset(seed=seed)
        self._note(-1, observation)
        return observation, infos

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Notes a step."""
        observation, reward, terminated, truncated, infos = self._env.step(action)
        self._note(int(action), observation)
        return observation, reward, terminated, truncated, infos

    def _note(self, action: int, observation: Any) -> None:
        if len(self._rows) < self._steps:
            self._rows.append([action, *map(float, observation)])
            if len(self._rows) == self._steps:
                partial = self._file.with_suffix(".partial")
                partial.write_text(json.dumps(self._rows))
                partial.rename(self._file)


def recording(folder: str) -> Recording:
    """An environment that writes down its first steps."""
    return Recording(folder)


class Exploding(Toy):
    """Rewards are finite, and so large that their squares are not."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Rewards beyond measure."""
        observation, _, terminated, truncated, infos = super().step(action)
        return observation, 1e25, terminated, truncated, infos


def exploding() -> Toy:
    """An environment whose rewards no trainer would survive."""
    return Exploding()


class Dawdling(Toy):
    """A simulator that takes its time."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Sleeps before it steps."""
        time.sleep(0.02)
        return super().step(action)


def dawdling() -> Toy:
    """An environment of fifty steps a second."""
    return Dawdling()
