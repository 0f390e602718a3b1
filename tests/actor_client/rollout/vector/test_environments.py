"""Tests environments that are remade after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import EnvironmentFailedTooOften, UnknownEnvironment, UnsupportedSpace
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.exits import ExitCode
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy

FIVE = spaces.Box(-1.0, 1.0, (5,), np.float32)
Make = Callable[[], EnvBatch]


def scalar(num_envs: int = 1, *, kind: Callable[..., Any] = toys.Toy, **kwargs: Any) -> Make:
    """Makes ordinary environments."""
    return lambda: ScalarBatch([kind(**kwargs) for _ in range(num_envs)], "Toy")


def vector(num_envs: int = 1, **kwargs: Any) -> Make:
    """Makes a vector environment."""
    return lambda: VectorBatch(toys.several(num_envs, **kwargs), "Toy")


def raising(error: Exception) -> Make:
    """Makes nothing."""

    def make() -> EnvBatch:
        raise error

    return make


def loop_over(
    first: Make, *others: Make, steps: int = 12, failures: int = 3, pause_seconds: float = 0.0
) -> tuple[RolloutLoop, KeepingLink, KeepingSession]:
    """Returns a loop whose environments are made by each of these in turn."""
    waiting = list(others)
    batch = first()
    link = KeepingLink(batch.spec)
    link.policies.append(RulePolicy(batch.spec))
    session = KeepingSession()
    limits = LoopLimits(max_steps=steps, max_env_failures=failures, remake_pause_seconds=pause_seconds)

    def make() -> EnvBatch:
        return waiting.pop(0)()

    return RolloutLoop(make, batch, session, lambda: link, limits=limits), link, session


TEN = spaces.Discrete(3, start=10)
FAILING = scalar(step_fails=(3,))
DIFFERENT: list[tuple[Make, Make, str]] = [
    (scalar(action_space=TEN, step_fails=(3,)), scalar(kind=toys.Masked), "with action masks, unlike the first one"),
    (
        scalar(kind=toys.Masked, length=100, stuck_at=3),
        scalar(action_space=TEN),
        "without action masks, unlike the first one",
    ),
    (FAILING, scalar(observation_space=FIVE), r"obs/obs: run float32\[3\], actor float32\[5\]"),
    (FAILING, scalar(action_space=spaces.Discrete(4)), r"discrete_branches: run \[2\], actor \[4\]"),
    (FAILING, scalar(2), "num_envs: run 1, actor 2"),
    (vector(2, step_fails=(3,)), vector(3), "num_envs: run 2, actor 3"),
    (FAILING, scalar(kind=toys.NoInfo), "reset must return a dictionary as info; got NoneType"),
    (FAILING, raising(UnknownEnvironment("port busy")), "failed: port busy"),
    (FAILING, raising(UnsupportedSpace("a Text")), "a Text"),
]


@pytest.mark.parametrize(("first", "other", "text"), DIFFERENT)
def test_what_differs_from_the_first_ones_is_a_failure_that_is_named(first: Make, other: Make, text: str) -> None:
    """Remade environments with other spaces are a failure; if it persists, the actor ends with code 40."""
    loop, link, _ = loop_over(first, other, failures=2)
    with pytest.raises(EnvironmentFailedTooOften, match=text) as caught:
        loop.run()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT_FAILED
    assert set(link.books.view().discarded) == {"env_error"}
    assert sum(chunk.rows for chunk in link.chunks) == 0
    assert link.books.view().balanced


class Motors(toys.Toy):
    """Remembers what it is told of pauses, each with the number of its steps; the first pause may fail."""

    def __init__(self, *, fails: bool = False, told: list[tuple[str, int]]) -> None:
        super().__init__(length=100)
        self.fails = fails
        self.told = told

    def on_paused(self) -> None:
        """Stops."""
        self.told.append(("paused", self.steps))
        if self.fails:
            raise OSError("a motor does not stop")

    def on_resumed(self) -> None:
        """Continues."""
        self.told.append(("resumed", self.steps))


def held_loop(first: Make, *others: Make) -> tuple[RolloutLoop, KeepingLink]:
    """Returns a loop of 12 steps, which an operator pauses before the first one for two waits."""
    loop, link, session = loop_over(first, *others)
    link.is_paused, link.allowed = True, lambda: not link.is_paused

    def wait() -> None:
        link.is_paused = session.waits < 2

    session.on_wait = wait
    return loop, link


def test_environments_are_told_of_a_pause_once() -> None:
    """The methods are found below wrappers; the end of a pause is told before the next step."""
    told: list[tuple[str, int]] = []
    loop, link = held_loop(
        lambda: ScalarBatch([gymnasium.wrappers.TimeLimit(Motors(told=told), 100) for _ in range(2)], "Toy")
    )
    loop.run()
    assert told == [("paused", 0), ("paused", 0), ("resumed", 0), ("resumed", 0)]
    assert link.books.view().produced == 12


def test_a_vector_environment_is_told_itself() -> None:
    """Its methods are called, and one that has neither is left alone."""
    told: list[str] = []

    def make() -> EnvBatch:
        environment = toys.several(2)
        environment.on_paused = lambda: told.append("paused")
        return VectorBatch(environment, "Toy")

    held_loop(make)[0].run()
    assert told == ["paused"]


def test_a_method_that_fails_is_a_failure_of_the_environment() -> None:
    """The environment is made again, and told again while the pause lasts."""
    told: list[tuple[str, int]] = []
    loop, link = held_loop(
        lambda: ScalarBatch([Motors(fails=True, told=told)], "Toy"), lambda: ScalarBatch([Motors(told=told)], "Toy")
    )
    assert loop.run().env_failures == 1
    assert told == [("paused", 0), ("paused", 0), ("resumed", 0)]
    assert link.books.view().produced == 12


def test_the_pause_grows_and_is_not_cut_short() -> None:
    """Credit and new policies do not shorten the pause between attempts."""
    waited: list[float] = []
    makes = [raising(UnknownEnvironment("port busy"))] * 3
    loop, _, session = loop_over(scalar(step_fails=(0,)), *makes, scalar(), failures=9, pause_seconds=1.0)
    now = [0.0]
    loop._environments._clock = lambda: now[0]

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += min(0.5, seconds)

    session.wait = wait  # type: ignore[assignment,method-assign]
    loop.run()
    assert waited == [left / 2 for seconds in (1, 2, 4, 8) for left in range(2 * seconds, 0, -1)]


def test_a_stop_ends_the_attempts() -> None:
    """A stop during the attempts ends the actor without an error."""
    loop, link, session = loop_over(FAILING, raising(UnknownEnvironment("gone")), failures=2, pause_seconds=1e9)

    def stop() -> None:
        session.stopping = True

    session.on_wait = stop
    assert loop.run().env_failures == 1
    assert link.books.view().balanced
