"""Numbers are found in info dictionaries; everything else is left alone."""

from __future__ import annotations

import numpy as np

from actor_client.envs.infos import episode_numbers, vector_episode_numbers


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
