"""Numbers and masks are found in info dictionaries; everything else is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from actor_client.envs.infos import (
    check_masks,
    episode_numbers,
    open_stuck_branches,
    read_mask,
    vector_episode_numbers,
)


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


def test_masks_are_arrays_or_tuples_of_arrays() -> None:
    """A mask of the right size is read whatever its type; anything else is no mask."""
    assert read_mask({"action_mask": np.array([1, 0, 5], np.int8)}, 3).tolist() == [1, 0, 1]  # type: ignore[union-attr]
    several = (np.array([True, False]), np.array([False, True, True]))
    assert read_mask({"action_mask": several}, 5).tolist() == [1, 0, 0, 1, 1]  # type: ignore[union-attr]
    assert read_mask({"action_mask": np.ones(4)}, 3) is None
    assert read_mask({"action_mask": [1, 0, 1]}, 3) is None
    assert read_mask({}, 3) is None


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
