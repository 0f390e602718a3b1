"""Tests vector environments in each of gymnasium's three reset modes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from rollcast.enums import SegmentEnd
from structlog.testing import capture_logs

from actor_client.envs.base import StepResult
from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.factory import make_env_batch
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from tests.actor_client.envs import toys

ZEROS = np.zeros((2, 1), np.int32)


def played(mode: str, steps: int) -> tuple[VectorBatch, list[StepResult], Any]:
    """Plays two copies with episodes of 2 steps and returns the results."""
    vector = toys.several(2, mode=mode, length=2)
    batch = VectorBatch(vector, "Toy")
    batch.reset([5, 6])
    return batch, [batch.step(None, ZEROS) for _ in range(steps)], vector


def test_next_step_rows_after_an_end_are_ignored() -> None:
    """With NextStep, the step after an end starts the new episode and is reported as ignored."""
    _, results, vector = played("NextStep", 5)

    assert [list(result.ended) for result in results] == [[], [0, 1], [], [], [0, 1]]
    ignored = [None if result.ignored is None else result.ignored.tolist() for result in results]
    assert ignored == [None, None, [True, True], None, None]
    shown = vector.envs[1].shown
    assert results[1].final_observations is not None
    np.testing.assert_array_equal(results[1].final_observations[0][1], shown[2])
    np.testing.assert_array_equal(results[2].observations[0][1], shown[3])
    assert results[1].ends.tolist() == [SegmentEnd.TRUNCATED] * 2
    assert results[1].infos == [{"left": 0.0, "nested.half": 0.5}] * 2


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_other_modes_begin_at_once(mode: str) -> None:
    """In other modes the step that ends an episode returns the next one's first observation, and no step is ignored."""
    _, results, vector = played(mode, 4)

    assert [list(result.ended) for result in results] == [[], [0, 1], [], [0, 1]]
    assert all(result.ignored is None for result in results)
    shown = vector.envs[1].shown
    assert results[1].final_observations is not None
    np.testing.assert_array_equal(results[1].final_observations[0][1], shown[2])
    np.testing.assert_array_equal(results[1].observations[0][1], shown[3])
    assert results[1].infos == [{"left": 0.0, "nested.half": 0.5}] * 2


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_masks_are_those_of_the_observation_to_act_on(mode: str) -> None:
    """Masks belong to the observation that is acted on, in each mode."""
    batch = VectorBatch(toys.several(2, mode=mode, kind="masked", length=4), "Toy")
    batch.reset([0, 1])

    ended = 0
    for _ in range(20):
        assert batch.action_masks is not None
        result = batch.step(None, batch.action_masks.argmax(axis=1)[:, None].astype(np.int32))
        ended += len(result.ended)
        if result.ended:
            assert result.final_masks is not None
            assert result.final_masks.all()
    assert ended == {"NextStep": 8, "SameStep": 10, "Disabled": 10}[mode]


def test_faults_become_one_error() -> None:
    """An error of the vector environment, or a missing final observation, becomes one error of one line."""

    class Forgetful:
        metadata = {"autoreset_mode": "SameStep"}
        num_envs = 1
        single_observation_space = toys.Toy().observation_space
        single_action_space = toys.Toy().action_space

        def reset(self, **_: Any) -> Any:
            return np.zeros((1, 3)), {}

        def step(self, _: Any) -> Any:
            return np.zeros((1, 3)), np.zeros(1), np.ones(1, bool), np.zeros(1, bool), {}

        def close(self) -> None:
            raise RuntimeError("stuck")

    batch = VectorBatch(Forgetful(), "Toy")
    batch.reset([1])
    with pytest.raises(EnvironmentFailed, match="no 'final_obs'"):
        batch.step(None, ZEROS[:1])
    with capture_logs() as logs:
        batch.close()
        batch.close()
    assert [log["event"] for log in logs] == ["environment_close_failed"]

    failing = VectorBatch(toys.several(2, step_fails=(0,)), "Toy")
    failing.reset([1, 2])
    with pytest.raises(EnvironmentFailed, match="the environment batch failed: RuntimeError: step 0 fails"):
        failing.step(None, ZEROS)


def test_each_copy_gets_its_own_seed() -> None:
    """Each copy in gymnasium's vector environments gets its own seed."""
    vector = toys.several(3)
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
    seeds = [7, 1000, 31]
    (shown,) = VectorBatch(wrapped, "Toy").reset(seeds)

    assert [environment.seeds for environment in vector.envs] == [[seed] for seed in seeds]
    (alone,) = ScalarBatch([toys.Toy() for _ in seeds], "Toy").reset(seeds)
    np.testing.assert_array_equal(shown, alone)


def test_other_vector_environments_get_one_seed() -> None:
    """A vector entry point gets one seed for all copies, which then differ."""
    batch = make_env_batch("CartPole-v1", num_envs=3, vector=True)
    (first,) = batch.reset([5, 6, 7])
    (again,) = batch.reset([5, 8, 9])
    (other,) = batch.reset([6, 6, 7])

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first[:, 0])) == 3


def test_an_environment_that_says_nothing_is_taken_for_the_usual_kind() -> None:
    """Without metadata, NextStep is assumed and reported."""
    vector = toys.several(1, length=1)
    vector.metadata = {}
    with capture_logs() as logs:
        batch = VectorBatch(vector, "Toy")

    assert [log["event"] for log in logs] == ["autoreset_mode_unknown"]
    batch.reset([0])
    batch.step(None, ZEROS[:1])
    ignored = batch.step(None, ZEROS[:1]).ignored
    assert ignored is not None
    assert ignored.tolist() == [True]
