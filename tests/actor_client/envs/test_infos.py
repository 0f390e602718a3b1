"""Tests how numbers and masks are read from info dictionaries."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.infos import check_masks, episode_numbers, open_stuck_branches, read_mask, vector_episode_numbers
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from tests.actor_client.envs import toys


def test_numbers_are_kept_and_the_rest_is_not() -> None:
    """Numbers and booleans are kept, also one nested level; text, arrays and bad names are left out."""
    info = {
        "won": True,
        "score": np.float32(2.5),
        "steps": np.int64(7),
        "zero_d": np.array(1.5),
        "episode": {"r": 3.0, "deeper": {"x": 1}},
        "name": "text",
        "array": np.zeros(2),
        "bad name": 1.0,
        "nothing": None,
        "complex": 1j,
        3: 4.0,
    }

    assert len(episode_numbers({f"k{i}": i for i in range(1000)})) == 32
    assert episode_numbers(info) == {  # type: ignore[arg-type]
        "won": 1.0,
        "score": 2.5,
        "steps": 7.0,
        "zero_d": 1.5,
        "episode.r": 3.0,
        "3": 4.0,
    }


def test_numbers_of_one_copy_of_a_vector_environment() -> None:
    """A copy of a vector environment has only the numbers that are set for it."""
    infos = {
        "score": np.array([1.0, 2.0, 3.0]),
        "_score": np.array([True, False, True]),
        "always": np.array([4, 5, 6]),
        "inner": {"x": np.array([7.0, 8.0, 9.0]), "_x": np.array([False, True, True])},
        "_inner": np.array([True, True, True]),
        "text": np.array(["a", "b", "c"], dtype=object),
        "single": 3.0,
    }

    assert vector_episode_numbers(infos, 1, 3) == {"always": 5.0, "inner.x": 8.0}
    assert vector_episode_numbers(infos, 2, 3) == {"score": 3.0, "always": 6.0, "inner.x": 9.0}
    assert vector_episode_numbers({}, 0, 3) == {}


class Telling(toys.Toy):
    """Two branches of 2 and 3 choices; returns the given masks one after another, None as no mask.

    Args:
        masks: For `reset`, then for each step.
    """

    def __init__(self, *masks: Any) -> None:
        super().__init__(action_space=spaces.MultiDiscrete([2, 3]))
        self._masks = list(masks)

    def _info(self) -> dict[str, Any]:
        mask = self._masks.pop(0)
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        return super().reset(seed=seed)[0], self._info()

    def step(self, action: Any) -> Any:
        """Takes one."""
        return *super().step(action)[:4], self._info()


def vector(*environments: Telling) -> VectorBatch:
    """Makes gymnasium's own collection of these."""
    made = gymnasium.vector.SyncVectorEnv([lambda found=found: found for found in environments])  # type: ignore[misc]
    return VectorBatch(made, "Toy")


FINE = np.array([1, 0, 0, 1, 1], np.int8)
ACTION = np.array([[0, 1]], np.int32)
WRONG = [
    (np.ones(4), "has 4 entries; it needs one for each of the 2 + 3 = 5 choices of the action space"),
    (np.ones((2, 3)), "has 6 entries"),
    ((np.ones(2), np.ones(2)), "has 4 entries"),
    ([], "has 0 entries"),
    (["yes"] * 5, "has the type <U3; it must hold numbers or booleans, where 0 forbids a choice"),
    ({"left": 1}, "has the type object"),
]


@pytest.mark.parametrize(
    "mask",
    [
        FINE,
        FINE.astype(bool),
        FINE.astype(float) * 5,
        (np.array([True, False]), np.array([False, True, True])),
        [1, 0, 0, 1, 1],
        ((1, 0), [0, 1, 1]),
    ],
)
def test_a_mask_is_read_whatever_its_type(mask: Any) -> None:
    """A mask is one array, or one for each branch, of numbers or booleans; 0 forbids."""
    read = read_mask({"action_mask": mask}, (2, 3))
    assert read is not None
    assert read.dtype == np.uint8
    assert read.tolist() == [1, 0, 0, 1, 1]
    batch = vector(Telling(mask), Telling(mask))
    batch.reset([1, 2])
    assert batch.action_masks is not None
    assert batch.action_masks.tolist() == [[1, 0, 0, 1, 1]] * 2


def test_without_a_mask_there_is_none() -> None:
    """There is no mask without a key, with None, or without choices."""
    assert read_mask({}, (3,)) is None
    assert read_mask({"action_mask": None}, (3,)) is None
    assert read_mask({"action_mask": np.ones(3)}, ()) is None


@pytest.mark.parametrize(("mask", "message"), WRONG)
def test_what_is_no_mask_of_the_space_is_refused(mask: Any, message: str) -> None:
    """A wrong mask is refused with what was found, what is needed, and the environment's number."""
    with pytest.raises(EnvironmentFailed) as caught:
        ScalarBatch([Telling(FINE), Telling(mask)], "Toy").reset([1, 2])
    assert caught.value.index == 1
    assert message in caught.value.message
    batch = ScalarBatch([Telling(FINE, mask)], "Toy")
    batch.reset([1])
    with pytest.raises(EnvironmentFailed, match="environment 0 failed: info"):
        batch.step(None, ACTION)
    if isinstance(mask, np.ndarray):
        with pytest.raises(EnvironmentFailed) as caught:
            vector(Telling(mask), Telling(mask)).reset([1, 2])
        assert message in caught.value.message


@pytest.mark.parametrize("masks", [[FINE, FINE], np.ones((3, 5))])
def test_a_vector_environment_of_ones_own_gives_an_array(masks: Any) -> None:
    """A custom vector environment must return its masks as an array with a row for each copy."""
    batch = vector(Telling(None), Telling(None))
    reset = batch._environment.reset
    batch._environment.reset = lambda **given: (reset(**given)[0], {"action_mask": masks})
    with pytest.raises(EnvironmentFailed, match=r"it must be an array \[2 environments, 5 choices\]"):
        batch.reset([1, 2])


def test_a_step_without_a_mask_allows_all() -> None:
    """A step without a mask allows everything, also in a vector environment."""
    for batch in (ScalarBatch([Telling(None, FINE), Telling(FINE, None)], "Toy"),
                  vector(Telling(None, FINE), Telling(FINE, None))):  # fmt: skip
        batch.reset([1, 2])
        assert batch.action_masks is not None
        assert batch.action_masks.tolist() == [[1] * 5, FINE.tolist()]
        batch.step(None, np.repeat(ACTION, 2, axis=0))
        assert batch.action_masks.tolist() == [FINE.tolist(), [1] * 5]


def test_a_first_mask_after_the_first_reset_is_refused() -> None:
    """A first mask after the first reset is refused, because the first reset decides whether there are masks."""
    for batch in (ScalarBatch([Telling(None, FINE)], "Toy"), vector(Telling(None, FINE))):
        batch.reset([1])
        assert batch.action_masks is None
        with pytest.raises(EnvironmentFailed, match="return a mask from every reset"):
            batch.step(None, ACTION)


def test_a_part_of_an_observation_forbids_nothing() -> None:
    """An action mask that is part of an observation is sent to the policy and forbids nothing."""
    seen = spaces.Dict({"action_mask": spaces.Box(0, 1, (3,), np.int8), "own": spaces.Box(0, 1, (2,), np.float32)})
    batch = ScalarBatch([toys.Toy(seen, spaces.Discrete(3))], "Toy")
    batch.reset([1])
    assert batch.action_masks is None
    assert [spec.name for spec in batch.spec.observations] == ["action_mask", "own"]


def test_a_branch_without_a_choice_is_an_error_unless_the_episode_is_over() -> None:
    """A mask that forbids all choices of a branch is an error that names the branch; a final one allows them all."""
    masks = np.array([[0, 1, 0, 0, 1], [0, 0, 0, 1, 0]], np.uint8)
    check_masks(masks[:1], (2, 3))
    with pytest.raises(ValueError, match="row 1 allows no choice of branch 0"):
        check_masks(masks, (2, 3))
    assert open_stuck_branches(masks, (2, 3)).tolist() == [[0, 1, 0, 0, 1], [1, 1, 0, 1, 0]]
