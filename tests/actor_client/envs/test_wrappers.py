"""Tests wrappers by flag around environments made in each of the four ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rollcast.enums import SegmentEnd

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import UnknownEnvironment, UnsupportedSpace
from actor_client.envs.factory import make_env_batch
from actor_client.envs.wrappers import Wrapping
from tests.actor_client.envs import toys


def made(env: str, *, num_envs: int = 2, vector: bool = False, kwargs: Any = None, **wrapping: Any) -> EnvBatch:
    """Returns environments in wrappers, reset."""
    batch = make_env_batch(env, num_envs=num_envs, env_kwargs=kwargs, vector=vector, wrapping=Wrapping(**wrapping))
    batch.reset(list(range(num_envs)))
    return batch


def choices(batch: EnvBatch) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Returns the first choice for each environment."""
    return np.zeros((batch.num_envs, len(batch.spec.action.discrete_branches)), np.int32)


@pytest.mark.parametrize(
    ("names", "reward"), [(("twice_the_reward", "one_more"), 3.0), (("one_more", "twice_the_reward"), 4.0)]
)
@pytest.mark.parametrize("env", ["CartPole-v1", f"{toys.MODULE}:toy"])
def test_wrappers_of_the_user_apply_in_their_order(env: str, names: tuple[str, ...], reward: float) -> None:
    """Wrappers apply in the order of their flags, the first innermost."""
    batch = made(env, wrap=tuple(f"{toys.MODULE}:{name}" for name in names))

    assert batch.step(None, choices(batch)).rewards.tolist() == [reward] * 2


@pytest.mark.parametrize("env", ["CartPole-v1", f"{toys.MODULE}:several"])
def test_a_vector_environment_is_wrapped_as_a_whole(env: str) -> None:
    """The wrapper is called once, with the vector environment."""
    batch = made(env, vector=True, num_envs=3, wrap=(f"{toys.MODULE}:one_more_of_each",))

    assert batch.step(None, choices(batch)).rewards.tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{toys.MODULE}:missing", "has no missing"),
        (f"{toys.MODULE}:forgets", "returned NoneType; it must return an environment"),
        ("builtins:int", "cannot wrap CartPole-v1: TypeError"),
    ],
)
def test_a_wrapper_that_cannot_be_applied_is_named(name: str, message: str) -> None:
    """The error names the flag, its value and the cause."""
    with pytest.raises(UnknownEnvironment) as caught:
        made("CartPole-v1", wrap=(name,))

    assert f"--wrap {name}" in caught.value.message
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_repetitions_stop_with_the_episode() -> None:
    """Repetitions stop at the end of an episode."""
    batch = made(f"{toys.MODULE}:counting", frame_skip=4)
    results = [batch.step(None, choices(batch)) for _ in range(3)]

    assert [list(result.ended) for result in results] == [[], [0, 1], []]
    assert [result.rewards.tolist() for result in results] == [[4.0] * 2, [1.0] * 2, [4.0] * 2]
    assert results[1].final_observations is not None
    assert results[1].final_observations[1].tolist() == [[5], [5]]


@pytest.mark.parametrize("env", ["MountainCar-v0", "Pendulum-v1", f"{toys.MODULE}:Plain"])
@pytest.mark.parametrize("skip", [1, 3])
def test_episodes_are_truncated_after_so_many_steps_of_the_policy(env: str, skip: int) -> None:
    """The step limit counts steps of the policy, not repetitions."""
    batch = made(env, num_envs=1, max_episode_steps=7, frame_skip=skip)
    action = batch.spec.action
    continuous = np.zeros((1, action.continuous_size), np.float32) if action.continuous_size else None
    results = [batch.step(continuous, None if action.continuous_size else choices(batch)) for _ in range(21)]

    assert [step for step, result in enumerate(results, start=1) if result.ended] == [7, 14, 21]
    assert {int(end) for result in results for end in result.ends} == {SegmentEnd.TRUNCATED}


@pytest.mark.parametrize("vector", [False, True])
def test_the_limit_replaces_the_registered_one(vector: bool) -> None:
    """The flag replaces gymnasium's registered limit in both directions."""
    batch = made("CartPole-v1", vector=vector, max_episode_steps=3)
    ended = [list(batch.step(None, choices(batch)).ended) for _ in range(3)]
    assert ended == [[], [], [0, 1]]
    longer = made("MountainCar-v0", num_envs=1, max_episode_steps=250)
    assert [step for step in range(1, 301) if longer.step(None, choices(longer)).ended] == [250]


@pytest.mark.parametrize(
    ("env", "wrapping", "reason"),
    [
        ("CartPole-v1", {"frame_skip": 4}, "the next one would begin with the old action"),
        (f"{toys.MODULE}:several", {"frame_skip": 4}, "the next one would begin with the old action"),
        (f"{toys.MODULE}:several", {"max_episode_steps": 9}, "pass the limit to it with --env-kwargs"),
    ],
)
def test_what_vector_environments_cannot_have_is_refused(env: str, wrapping: dict[str, Any], reason: str) -> None:
    """Flags that vector environments do not support are refused with the reason."""
    with pytest.raises(UnknownEnvironment, match=reason) as caught:
        made(env, vector=True, **wrapping)
    assert "does not work with --vector" in caught.value.message


def shown(batch: EnvBatch, observations: list[Any]) -> dict[str, Any]:
    """Returns the stack of each observation of the first environment, as the step numbers in it."""
    found = {}
    for spec, values in zip(batch.spec.observations, observations, strict=True):
        assert values.shape == (batch.num_envs, *spec.shape)
        assert values.dtype == spec.dtype
        where = {
            "board": np.s_[0, ::2, 0, 0],
            "picture": np.s_[0, 0, 0, ::3],
            "number": np.s_[0, ::2],
            "count": np.s_[0],
        }
        found[spec.name] = [int(value) for value in values[where[spec.name]]]
    return found


def stack(*steps: int) -> dict[str, list[int]]:
    """Returns what each observation shows when the stack holds these steps."""
    return {name: list(steps) for name in ("board", "count", "number", "picture")}


@pytest.mark.parametrize("mode", [None, "NextStep", "SameStep", "Disabled"])
def test_the_newest_observations_are_shown_as_one(mode: str | None) -> None:
    """A stack holds the newest observations, oldest first, and starts again with each episode."""
    vector = mode is not None
    kwargs = {"length": 3, **({"mode": mode} if vector else {})}
    env = f"{toys.MODULE}:{'counting_together' if vector else 'counting'}"
    batch = make_env_batch(env, num_envs=2, env_kwargs=kwargs, vector=vector, wrapping=Wrapping(frame_stack=3))
    assert {spec.name: spec.shape for spec in batch.spec.observations} == {
        "board": (6, 6, 6),
        "count": (3,),
        "number": (6,),
        "picture": (20, 20, 9),
    }
    assert shown(batch, batch.reset([1, 2])) == stack(0, 0, 0)
    results = [batch.step(None, choices(batch)) for _ in range(6)]
    assert [shown(batch, result.observations) for result in results[:2]] == [stack(0, 0, 1), stack(0, 1, 2)]
    assert results[2].final_observations is not None
    assert shown(batch, results[2].final_observations) == stack(1, 2, 3)
    following = results[2:] if mode != "NextStep" else results[3:]
    assert [shown(batch, result.observations) for result in following[:3]] == [
        stack(0, 0, 0),
        stack(0, 0, 1),
        stack(0, 1, 2),
    ]


def test_earlier_stacks_stay_as_they_were() -> None:
    """Later steps do not modify returned values."""
    batch = make_env_batch(f"{toys.MODULE}:counting", num_envs=1, wrapping=Wrapping(frame_stack=2))
    kept = [batch.reset([1]), *(batch.step(None, choices(batch)).observations for _ in range(7))]

    assert [shown(batch, observations)["count"] for observations in kept] == [
        [0, 0], [0, 1], [1, 2], [2, 3], [3, 4], [0, 0], [0, 1], [1, 2],
    ]  # fmt: skip


def test_lists_cannot_be_stacked() -> None:
    """Stacking a list is refused; the error names the observation and the next step."""
    from gymnasium import spaces

    fruits = spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True)
    fruits.max_length = 3  # type: ignore[attr-defined]
    kwargs = {"observation_space": spaces.Dict({"fruits": fruits})}
    with pytest.raises(UnsupportedSpace, match="observation fruits is a list of entities, which --frame-stack"):
        make_env_batch(f"{toys.MODULE}:toy", num_envs=1, env_kwargs=kwargs, wrapping=Wrapping(frame_stack=2))
