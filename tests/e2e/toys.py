"""Environments for actors, named as `tests.e2e.toys:callable`."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.actor_client.envs.toys import Masked, Toy

MODULE = "tests.e2e.toys"


def named(function: str) -> str:
    """Returns what `--env` takes."""
    return f"{MODULE}:{function}"


def to_the_middle(observations: Any, _masks: object) -> Any:
    """Moves a player of the duel to the middle of the mat: a script for `--opponent`."""
    return np.clip(-10 * observations[:, :2] - observations[:, 2:4], -1, 1)


def resigns(_observations: object, _masks: object) -> object:
    """Fails: a script for `--opponent`."""
    raise RuntimeError("mate in one")


class Answers(gymnasium.Env[Any, Any]):
    """Pays for two choices in each of 8 steps; ``hint`` shows the first, ``answer`` the second and the episode's luck.

    Luck is added to the rewards, plus or minus 2 in each step of an episode.

    Args:
        tells: Whether there is the observation ``answer``.
    """

    steps = 8

    def __init__(self, *, tells: bool = True) -> None:
        names = ["answer", "hint"] if tells else ["hint"]
        self.observation_space = spaces.Dict(dict.fromkeys(names, spaces.Box(-1.0, 1.0, (2,), np.float32)))
        self.action_space = spaces.MultiDiscrete([2, 2])
        self._shown = names
        self._step = self._luck = 0
        self._asked = np.zeros(2, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draws the luck of an episode."""
        super().reset(seed=seed)
        self._step, self._luck = 0, 2 * int(self.np_random.integers(2)) - 1
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Pays."""
        reward = float((np.asarray(action) == self._asked).sum() + 2 * self._luck)
        self._step += 1
        return self._seen(), reward, self._step >= self.steps, False, {}

    def _seen(self) -> dict[str, Any]:
        self._asked = self.np_random.integers(0, 2, 2)
        first, second = 2 * self._asked - 1
        seen = {"answer": [second, self._luck], "hint": [first, self.np_random.uniform(-1.0, 1.0)]}
        return {name: np.array(seen[name], np.float32) for name in self._shown}


def dict_space() -> Toy:
    """Returns an environment with Dict observations."""
    parts: dict[str, spaces.Space[Any]] = {
        "near": spaces.Box(-1.0, 1.0, (3,), np.float32),
        "far": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    }
    return Toy(spaces.Dict(parts))


def tuple_space() -> Toy:
    """Returns an environment with Tuple observations."""
    return Toy(spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3))))


def image_space() -> Toy:
    """Returns an environment with images of rows, columns and colors."""
    return Toy(spaces.Box(0, 255, (32, 24, 3), np.uint8))


def multi_discrete_space() -> Toy:
    """Returns an environment with categories and several branches."""
    return Toy(spaces.MultiDiscrete([2, 3, 4]), spaces.MultiDiscrete([3, 2]))


def multi_binary_space() -> Toy:
    """Returns an environment with bits as observations and actions."""
    return Toy(spaces.MultiBinary(6), spaces.MultiBinary(3))


def discrete_space() -> Toy:
    """Returns an environment with a category."""
    return Toy(spaces.Discrete(5, start=-2), spaces.Discrete(3, start=1))


def box_space() -> Toy:
    """Returns an environment with numbers, one of them without bounds."""
    low, high = np.array([-2.0, -np.inf], np.float32), np.array([2.0, np.inf], np.float32)
    return Toy(spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(low, high, dtype=np.float32))


def wide() -> Toy:
    """Returns an environment with more numbers than the first one of the run."""
    return Toy(spaces.Box(-1.0, 1.0, (5,), np.float32))


def raising_when_made() -> Toy:
    """Raises instead of returning an environment."""
    raise OSError("the simulator is not installed\nand more than one line of it")


def raising_at_steps() -> Toy:
    """Returns an environment whose steps raise."""
    return Toy(step_fails=tuple(range(100)))


def raising_now_and_then() -> Toy:
    """Returns an environment whose every eighth step raises."""
    return Toy(length=1000, step_fails=(7,))


def wide_and_raising() -> Toy:
    """Returns an environment with a wrong spec that cannot be reset."""
    return Toy(spaces.Box(-1.0, 1.0, (5,), np.float32), reset_fails=tuple(range(100)))


def hanging() -> Toy:
    """Takes some steps, and never returns from the next one."""

    class Hanging(Toy):
        def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
            if len(self.actions) >= 5:
                time.sleep(10**6)
            return super().step(action)

    return Hanging()


def hanging_in_a_library() -> Toy:
    """Takes some steps, and the next one waits in C for a lock that is not released; Python's own lock is free."""

    class Hanging(Toy):
        def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
            if len(self.actions) >= 5:
                hang_in_a_library()
            return super().step(action)

    return Hanging()


def hang_in_a_library() -> None:
    """Calls C code that releases Python's lock, and does not return when a signal arrives."""
    lock = ctypes.create_string_buffer(256)  # zeros: a mutex that is free
    library = ctypes.CDLL(None)
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)


def hanging_when_made() -> Toy:
    """Writes a line, and does not return."""
    sys.stderr.write("construction begins\n")
    hang_in_a_library()
    return Toy()


def hanging_processes(num_envs: int) -> Any:
    """Returns a vector environment with processes that hang."""
    return gymnasium.vector.AsyncVectorEnv([hanging] * num_envs)


def returning(folder: str, made_after: int, masked: bool = False) -> Toy:
    """Returns an environment that fails once, cannot be made for a while, and then works.

    Args:
        folder: Where each call leaves a file, so that the next one knows.
        made_after: Calls that raise.
        masked: Whether the last one has masks.
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
    """CartPole that writes its first steps to a file named after the process.

    Args:
        folder: Of the file.
        steps: How many.
    """

    def __init__(self, folder: str, steps: int = 40) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self._file = Path(folder) / f"{os.getpid()}.json"
        self._steps = steps
        self._rows: list[list[float]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        observation, infos = self._env.reset(seed=seed)
        self._note(-1, observation)
        return observation, infos

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Records a step."""
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


class Leaving(Toy):
    """Ends its process in a step, as code that knows nothing of an actor does."""

    ways: ClassVar[dict[str, Callable[[], object]]] = {
        "sys.exit": sys.exit,
        "os._exit": lambda: os._exit(3),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    }

    def __init__(self, way: str) -> None:
        super().__init__(length=1000)
        self._leave = self.ways[way]

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes 700 steps."""
        if len(self.actions) == 700:
            self._leave()
        return super().step(action)


def leaving(way: str) -> Leaving:
    """Returns an environment that ends its process."""
    return Leaving(way)


def recording(folder: str) -> Recording:
    """Returns an environment that writes its first steps."""
    return Recording(folder)


class Exploding(Toy):
    """Gives finite rewards whose squares overflow."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Steps and replaces the reward."""
        observation, _, terminated, truncated, infos = super().step(action)
        return observation, 1e25, terminated, truncated, infos


def exploding() -> Toy:
    """Returns an environment whose rewards make every update fail."""
    return Exploding()


class Dawdling(Toy):
    """A slow simulator."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Sleeps before it steps."""
        time.sleep(0.02)
        return super().step(action)


def dawdling() -> Toy:
    """Returns an environment with fifty steps a second."""
    return Dawdling()
