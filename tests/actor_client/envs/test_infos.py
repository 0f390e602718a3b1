"""Numbers are found in info dictionaries; everything else is left alone."""

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
    """Real numbers and truth values of any type count, one nested level too; text, arrays and bad names do not."""
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

    assert episode_numbers(info) == {  # type: ignore[arg-type]
        "won": 1.0,
        "score": 2.5,
        "steps": 7.0,
        "zero_d": 1.5,
        "episode.r": 3.0,
        "3": 4.0,
    }


def test_there_are_only_so_many_numbers() -> None:
    """An environment cannot make a chunk of any number of columns."""
    assert len(episode_numbers({f"k{i}": i for i in range(1000)})) == 32


def test_numbers_of_one_copy_of_a_vector_environment() -> None:
    """Only what is set for a copy counts as its own, one nested level too."""
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
    """Two branches of 2 and 3 choices; returns the masks it is given, one after another; None is no mask.

    Args:
        masks: for `reset`, then for each step.
    """

    def __init__(self, *masks: Any) -> None:
        super().__init__(action_space=spaces.MultiDiscrete([2, 3]))
        self._masks = list(masks)

    def _info(self) -> dict[str, Any]:
        mask = self._masks.pop(0)
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
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
    (np.ones(4), "has 4 entries; the action space has 2 + 3 = 5 choices"),
    (np.ones((2, 3)), "has 6 entries"),
    ((np.ones(2), np.ones(2)), "has 4 entries"),
    ([], "has 0 entries"),
    (["yes"] * 5, "holds <U3; numbers or truth values are needed, 0 forbids"),
    ({"left": 1}, "holds object"),
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
    """One array, or one for each branch, of numbers or truth values; 0 forbids. Alone, and in a collection."""
    read = read_mask({"action_mask": mask}, (2, 3))
    assert read is not None
    assert read.dtype == np.uint8
    assert read.tolist() == [1, 0, 0, 1, 1]
    batch = vector(Telling(mask), Telling(mask))
    batch.reset([1, 2])
    assert batch.action_masks is not None
    assert batch.action_masks.tolist() == [[1, 0, 0, 1, 1]] * 2


def test_without_a_mask_there_is_none() -> None:
    """No key, None under it, or no choice that could be forbidden."""
    assert read_mask({}, (3,)) is None
    assert read_mask({"action_mask": None}, (3,)) is None
    assert read_mask({"action_mask": np.ones(3)}, ()) is None


@pytest.mark.parametrize(("mask", "message"), WRONG)
def test_what_is_no_mask_of_the_space_is_refused(mask: Any, message: str) -> None:
    """It says what was found and what is needed, with the first reset or later, and names the environment."""
    with pytest.raises(EnvironmentFailed) as caught:
        ScalarBatch([Telling(FINE), Telling(mask)], "Toy").reset([1, 2])
    assert caught.value.index == 1
    assert message in caught.value.message
    batch = ScalarBatch([Telling(FINE, mask)], "Toy")
    batch.reset([1])
    with pytest.raises(EnvironmentFailed, match="environment 0 failed: info"):
        batch.step(None, ACTION)


@pytest.mark.parametrize(("mask", "message"), [*WRONG[:3], WRONG[4]])
def test_what_is_no_mask_of_a_vector_environment_is_refused(mask: Any, message: str) -> None:
    """As alone, though gymnasium stacks it."""
    with pytest.raises(EnvironmentFailed) as caught:
        vector(Telling(mask), Telling(mask)).reset([1, 2])
    assert message in caught.value.message


@pytest.mark.parametrize("masks", [[FINE, FINE], np.ones((3, 5))])
def test_a_vector_environment_of_ones_own_gives_an_array(masks: Any) -> None:
    """Lists and arrays of another number of copies are refused."""
    batch = vector(Telling(None), Telling(None))
    reset = batch._environment.reset
    batch._environment.reset = lambda **given: (reset(**given)[0], {"action_mask": masks})
    with pytest.raises(EnvironmentFailed, match=r"an array \[2 environments, 5\] is needed"):
        batch.reset([1, 2])


def test_a_step_without_a_mask_allows_all() -> None:
    """Of environments that have masks, one that gives none for once allows everything; so in a collection."""
    for batch in (ScalarBatch([Telling(None, FINE), Telling(FINE, None)], "Toy"),
                  vector(Telling(None, FINE), Telling(FINE, None))):  # fmt: skip
        batch.reset([1, 2])
        assert batch.action_masks is not None
        assert batch.action_masks.tolist() == [[1] * 5, FINE.tolist()]
        batch.step(None, np.repeat(ACTION, 2, axis=0))
        assert batch.action_masks.tolist() == [FINE.tolist(), [1] * 5]


def test_a_first_mask_after_the_first_reset_is_refused() -> None:
    """It would be ignored: whether there are masks is settled by the first reset."""
    for batch in (ScalarBatch([Telling(None, FINE)], "Toy"), vector(Telling(None, FINE))):
        batch.reset([1])
        assert batch.action_masks is None
        with pytest.raises(EnvironmentFailed, match="return a mask with every reset"):
            batch.step(None, ACTION)


def test_a_part_of_an_observation_forbids_nothing() -> None:
    """A mask beside the observation, as other libraries have it, is seen by the policy, and no more."""
    seen = spaces.Dict({"action_mask": spaces.Box(0, 1, (3,), np.int8), "own": spaces.Box(0, 1, (2,), np.float32)})
    batch = ScalarBatch([toys.Toy(seen, spaces.Discrete(3))], "Toy")
    batch.reset([1])
    assert batch.action_masks is None
    assert [spec.name for spec in batch.spec.observations] == ["action_mask", "own"]


def test_each_bit_has_two_choices() -> None:
    """A mask of bits has 0 and 1 of each."""
    size = ScalarBatch([toys.bits()], "Toy").spec.action.discrete_branches
    read = read_mask({"action_mask": np.array([1, 0, 1, 1, 1, 1, 0, 1])}, size)
    assert read is not None
    assert read.tolist() == [1, 0, 1, 1, 1, 1, 0, 1]


def test_a_branch_without_a_choice_is_an_error() -> None:
    """Each branch of each row needs an allowed choice; the error says where there is none."""
    masks = np.array([[1, 0, 1, 1, 1], [1, 1, 0, 0, 0]], np.uint8)

    check_masks(masks[:1], (2, 3))
    with pytest.raises(ValueError, match="row 1 allows no choice of branch 1"):
        check_masks(masks, (2, 3))


def test_a_last_mask_without_a_choice_allows_all() -> None:
    """Only the branch that allows nothing is opened."""
    masks = np.array([[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]], np.uint8)

    assert open_stuck_branches(masks, (2, 3)).tolist() == [[0, 1, 1, 1, 1], [1, 1, 0, 1, 0]]
