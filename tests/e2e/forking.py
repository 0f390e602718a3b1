"""Environments with processes of their own, as simulators have them; named as `tests.e2e.forking:callable`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from typing import Any, SupportsFloat

import gymnasium

from tests.actor_client.envs.toys import Toy

FORK = multiprocessing.get_context("fork")
Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


def _answer(pipe: Any) -> None:
    while True:
        pipe.send(pipe.recv())


def _square(number: int) -> int:
    gc.collect()
    return number * number


class Served(Toy):
    """Its simulator is a process, which `close()` ends by SIGTERM and waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._pipe, other = FORK.Pipe()
        self._process = FORK.Process(target=_answer, args=(other,), daemon=True)
        self._process.start()

    def step(self, action: Any) -> Step:
        """Asks the simulator."""
        self._pipe.send(action)
        return super().step(self._pipe.recv())

    def close(self) -> None:
        """Ends the simulator."""
        self._process.terminate()
        self._process.join()


class Unclosed(Served):
    """Leaves the simulator to Python's end."""

    def close(self) -> None:
        """Does nothing."""


class Deleted(Served):
    """Ends the simulator when nothing refers to the environment, which refers to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.itself = self

    def close(self) -> None:
        """Does nothing."""

    def __del__(self) -> None:
        """Ends the simulator."""
        super().close()


class Pooled(Toy):
    """Begins its first episodes with a pool, and with processes that must not crash."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts processes, and waits for them."""
        if self.resets > 4:
            return super().reset(seed=seed, options=options)
        with FORK.Pool(2) as pool:
            assert pool.map(_square, range(8)) == [number * number for number in range(8)]
        started = [FORK.Process(target=_square, args=(number,)) for number in range(4)]
        for process in started:
            process.start()
        for process in started:
            process.join()
            assert process.exitcode == 0, f"a process ended with {process.exitcode}"
        return super().reset(seed=seed, options=options)


class _Failing(Toy):
    def step(self, action: Any) -> Step:
        if self.np_random.random() < 0.02:
            raise RuntimeError("the simulator lost its server")
        return super().step(action)


def failing(num_envs: int) -> Any:
    """Returns copies in processes, of which one fails now and then."""
    return gymnasium.vector.AsyncVectorEnv([_Failing] * num_envs)


class Forgotten(Toy):
    """Forks without care: the forked process fails, where it should have ended."""

    def step(self, action: Any) -> Step:
        """Forks in the fifth step."""
        if len(self.actions) == 5 and os.fork() == 0:
            raise RuntimeError("the forked process goes on")
        return super().step(action)


class Stuck(Toy):
    """Fails, and does not return from where it is told.

    Args:
        where: `close` or `__del__`.
    """

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def step(self, action: Any) -> Step:
        """Fails in the tenth step."""
        if len(self.actions) == 10:
            raise RuntimeError("the simulator has frozen")
        return super().step(action)

    def close(self) -> None:
        """Hangs, perhaps."""
        if self._where == "close":
            threading.Event().wait()

    def __del__(self) -> None:
        """Hangs, perhaps."""
        if self._where == "__del__":
            threading.Event().wait()


class _StuckProcesses(gymnasium.vector.AsyncVectorEnv):
    def close(self, **_: Any) -> None:
        sys.stderr.write("closing begins\n")
        threading.Event().wait()


def stuck_processes(num_envs: int) -> Any:
    """Returns copies in processes, which do not close."""
    return _StuckProcesses([Toy] * num_envs)
