"""Tests environments that are remade after a failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from numpy.typing import NDArray
from structlog.testing import capture_logs

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import EnvironmentFailedTooOften, UnknownEnvironment, UnsupportedSpace
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.exits import ExitCode
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, Piece, RulePolicy, pieces

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
DIFFERENT: dict[str, tuple[Make, Make, Make, str]] = {
    "masks that come": (
        scalar(action_space=TEN, step_fails=(3,)),
        scalar(kind=toys.Masked),
        scalar(action_space=TEN),
        "remade with action masks, unlike the first one",
    ),
    "masks that go": (
        scalar(kind=toys.Masked, length=100, stuck_at=3),
        scalar(action_space=TEN),
        scalar(kind=toys.Masked, length=100),
        "remade without action masks, unlike the first one",
    ),
    "another observation": (
        FAILING,
        scalar(observation_space=FIVE),
        scalar(),
        r"obs/obs: run float32\[3\], actor float32\[5\]",
    ),
    "other actions": (
        FAILING,
        scalar(action_space=spaces.Discrete(4)),
        scalar(),
        r"discrete_branches: run \[2\], actor \[4\]",
    ),
    "another number": (FAILING, scalar(2), scalar(), "num_envs: run 1, actor 2"),
    "vector: masks that go": (
        vector(kind="masked", length=100, stuck_at=3),
        lambda: VectorBatch(unmasked_several(), "Toy"),
        vector(kind="masked", length=100),
        "remade without action masks",
    ),
    "vector: another number": (vector(2, step_fails=(3,)), vector(3), vector(2), "num_envs: run 2, actor 3"),
    "reset without an info": (
        FAILING,
        scalar(kind=toys.NoInfo),
        scalar(),
        "reset must return a dictionary as info; got NoneType",
    ),
    "not made": (
        FAILING,
        raising(UnknownEnvironment("toys:Toy cannot be made: OSError: port busy")),
        scalar(),
        "failed: toys:Toy cannot be made: OSError: port busy",
    ),
    "an unknown space": (
        FAILING,
        raising(UnsupportedSpace("the observation is a Text")),
        scalar(),
        "the observation is a Text",
    ),
}


def unmasked_several() -> Any:
    """Returns a vector environment with the spaces of the masked one."""
    made = toys.several(1, kind="masked")
    reset = made.reset

    def without(**arguments: Any) -> Any:
        return reset(**arguments)[0], {}

    made.reset = without
    return made


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_from_the_first_ones_is_a_failure_that_is_named(case: str) -> None:
    """Remade environments with other spaces are a failure; if it persists, the actor ends with code 40."""
    first, other, _, text = DIFFERENT[case]
    loop, link, _ = loop_over(first, other, failures=2)
    with pytest.raises(EnvironmentFailedTooOften, match=text) as caught:
        loop.run()

    assert caught.value.exit_code is ExitCode.ENVIRONMENT_FAILED
    assert set(link.books.view().discarded) == {"env_error"}
    assert sum(chunk.rows for chunk in link.chunks) == 0
    assert link.books.view().balanced


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_comes_back_as_it_was_goes_on(case: str) -> None:
    """One failed attempt of any kind does not end the actor."""
    first, other, again, _ = DIFFERENT[case]
    loop, link, _ = loop_over(first, other, again)
    stats = loop.run()

    assert stats.env_failures == 2
    assert stats.steps == 12
    assert link.books.view().balanced
    assert link.books.view().discarded["env_error"] == link.books.view().produced - link.books.view().unacked > 0


def test_failures_are_told_once_per_interval() -> None:
    """Failures are logged immediately and then once per interval."""
    loop, _, _ = loop_over(*[scalar(length=100, step_fails=(1,))] * 30, steps=30, failures=100)
    with capture_logs() as logs:
        assert loop.run().env_failures == 29

    assert [(log["event"], log["left_out"]) for log in logs] == [("environment_failed", 0)]


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


ENVS = 4
TIME_LIMIT = 40
VECTOR_STEPS = 400


def first_state(env: int, episode: int) -> NDArray[np.float64]:
    """Returns where an episode begins, the same for both."""
    return np.random.default_rng((env, episode)).uniform(-0.05, 0.05, 4)


class SetCartPole(CartPoleEnv):
    """CartPole whose episodes start at given states."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.episode = 0

    def reset(self, **arguments: Any) -> Any:
        """Starts at the state of the episode."""
        _, info = super().reset(**arguments)
        self.state = first_state(self.index, self.episode)
        self.episode += 1
        return np.array(self.state, np.float32), info


class SetCartPoleVector(CartPoleVectorEnv):
    """The vector entry point of CartPole, with episodes that start at given states."""

    def __init__(self) -> None:
        super().__init__(num_envs=ENVS, max_episode_steps=TIME_LIMIT)
        self.episodes = np.zeros(ENVS, np.int64)
        self.state: Any

    def _begin(self, envs: Sequence[int]) -> None:
        for env in envs:
            self.state[:, env] = first_state(env, int(self.episodes[env]))
            self.episodes[env] += 1

    def reset(self, **arguments: Any) -> Any:
        """Starts an episode in every copy."""
        _, info = super().reset(**arguments)
        self._begin(range(ENVS))
        return self.state.T.astype(np.float32), info

    def step(self, action: Any) -> Any:
        """Starts an episode where the last one ended."""
        over = np.flatnonzero(self.prev_done).tolist()
        _, *rest = super().step(action)
        self._begin(over)
        return (self.state.T.astype(np.float32), *rest)


def lean(observations: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Pushes towards the pole's lean, so that some episodes end early and some at the limit."""
    angle = observations[0][:, 2]
    return np.asarray(angle > 0, np.int32)


def by_env(batch: EnvBatch) -> tuple[dict[int, list[Piece]], KeepingLink]:
    """Returns the segments of each environment after this many vector steps."""
    link = KeepingLink(batch.spec, time_horizon=7)
    link.policies.append(RulePolicy(batch.spec, rule=lean))
    limits = LoopLimits(max_steps=VECTOR_STEPS * ENVS)
    RolloutLoop(lambda: batch, batch, KeepingSession(), lambda: link, limits=limits).run()
    found: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces(link.chunks):
        found[piece.env].append(piece)
    return found, link


def test_both_ways_give_the_same_segments() -> None:
    """Vector and single environments give equal lengths, ends, episodes, rows and final observations."""
    scalar = ScalarBatch([gymnasium.wrappers.TimeLimit(SetCartPole(env), TIME_LIMIT) for env in range(ENVS)], "Pole")
    one_by_one, scalar_link = by_env(scalar)
    at_once, vector_link = by_env(VectorBatch(SetCartPoleVector(), "Pole"))

    assert scalar_link.books.view().produced == VECTOR_STEPS * ENVS
    ignored = sum(len(piece) == 0 or piece.first_step == 0 for piece in pieces(vector_link.chunks)) - ENVS
    assert vector_link.books.view().produced == VECTOR_STEPS * ENVS - ignored
    ends = set()
    for env in range(ENVS):
        common = min(len(one_by_one[env]), len(at_once[env])) - 1
        assert common > 20
        for expected, found in zip(one_by_one[env][:common], at_once[env][:common], strict=True):
            assert (expected.episode, expected.first_step, expected.end, expected.versions) == (
                found.episode,
                found.first_step,
                found.end,
                found.versions,
            )
            for name, rows in expected.rows.items():
                np.testing.assert_allclose(rows, found.rows[name], rtol=1e-5, atol=1e-6)
            final = expected.final["final_obs/obs"]
            assert final == pytest.approx(found.final["final_obs/obs"], rel=1e-5, abs=1e-6)
            ends.add(expected.end.name)
    assert ends == {"CUT", "TERMINATED", "TRUNCATED"}
