"""Tests batches of single environments: steps, ends, masks and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rollcast.enums import SegmentEnd
from structlog.testing import capture_logs

from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.scalar import ScalarBatch
from tests.actor_client.envs import toys

ZEROS = np.zeros((2, 1), np.int32)


def test_an_ended_episode_gives_its_last_observation_and_the_next_begins() -> None:
    """A step that ends an episode returns the new episode's first observation and the final one separately."""
    environments = [toys.Toy(length=2), toys.Toy(length=3)]
    batch = ScalarBatch(environments, "Toy")
    batch.reset([1, 2])

    first = batch.step(None, ZEROS)
    second = batch.step(None, ZEROS)

    assert list(first.ended) == []
    assert first.final_observations is None
    assert list(second.ended) == [0]
    assert second.ends.tolist() == [SegmentEnd.TRUNCATED]
    assert second.final_observations is not None
    np.testing.assert_array_equal(second.final_observations[0][0], environments[0].shown[2])
    np.testing.assert_array_equal(second.observations[0][0], environments[0].shown[3])
    np.testing.assert_array_equal(second.observations[0][1], environments[1].shown[2])
    assert second.infos == [{"left": 0.0, "nested.half": 0.5}]
    assert second.ignored is None
    assert second.rewards.tolist() == [1.0, 1.0]
    assert [environment.seeds for environment in environments] == [[1, None], [2]]


def test_an_episode_that_is_both_is_terminated() -> None:
    """An episode that is both terminated and truncated counts as terminated."""
    environment = toys.Toy(length=1)
    environment.step = lambda _: (np.zeros(3, np.float32), 0.0, True, True, {})  # type: ignore[method-assign,assignment]
    batch = ScalarBatch([environment], "Toy")
    batch.reset([0])

    assert batch.step(None, ZEROS[:1]).ends.tolist() == [SegmentEnd.TERMINATED]


def test_an_environment_may_reuse_its_array() -> None:
    """Returned values do not change when the environment reuses its array."""
    batch = ScalarBatch([toys.Reusing()], "Toy")
    shown = [batch.reset([0])[0][0, 0]]
    results = [batch.step(None, ZEROS[:1]) for _ in range(3)]

    assert [*shown, *(result.observations[0][0, 0] for result in results)] == [100, 101, 102, 203]
    assert results[2].final_observations is not None
    assert results[2].final_observations[0][0, 0] == 103


@pytest.mark.parametrize(
    ("make", "index", "cause"),
    [
        (lambda: toys.Toy(step_fails=(1,)), 1, "RuntimeError: step 1 fails"),
        (lambda: toys.Toy(length=2, reset_fails=(1,)), 1, "RuntimeError: reset 1 fails"),
        (toys.wrong_shape, None, "ValueError"),
    ],
)
def test_a_fault_names_the_environment_and_the_cause_in_one_line(make: Any, index: int | None, cause: str) -> None:
    """An exception or a wrong return value becomes one error of one line."""
    batch = ScalarBatch([toys.Toy(), make()], "Toy")
    batch.reset([0, 0])

    batch.step(None, ZEROS)
    with pytest.raises(EnvironmentFailed) as caught:
        batch.step(None, ZEROS)

    assert caught.value.index == index
    assert caught.value.cause.startswith(cause)
    assert "\n" not in caught.value.message


def test_masks_are_those_of_the_observation_to_act_on() -> None:
    """Masks belong to the observation that is acted on, across episodes; a final mask without choices allows all."""
    batch = ScalarBatch([toys.Masked(4), toys.Masked(3)], "Toy")
    batch.reset([0, 1])

    for _ in range(12):
        assert batch.action_masks is not None
        assert batch.action_masks.sum(axis=1).tolist() == [1, 1]
        result = batch.step(None, batch.action_masks.argmax(axis=1)[:, None].astype(np.int32))
        if result.ended:
            assert result.final_masks is not None
            assert result.final_masks.all()


def test_a_mask_without_a_choice_is_a_fault() -> None:
    """An observation with a mask that allows no choice is an error of the environment."""
    batch = ScalarBatch([toys.Masked(4, stuck_at=1)], "Toy")
    batch.reset([0])

    with pytest.raises(EnvironmentFailed, match="allows no choice"):
        batch.step(None, np.array([[1]], np.int32))


def test_closing_closes_all_and_hides_faults() -> None:
    """An error while closing does not keep other environments open; closing twice does nothing."""
    environments = [toys.Toy(), toys.Toy()]
    environments[0].close = lambda: 1 / 0  # type: ignore[assignment,method-assign]
    batch = ScalarBatch(environments, "Toy")

    with capture_logs() as logs:
        batch.close()
        batch.close()

    assert environments[1].closed
    assert [log["event"] for log in logs] == ["environment_close_failed"]


def test_wrong_values_are_told() -> None:
    """An environment with an older interface, or without an info, gets an error that names what is missing."""
    batch = ScalarBatch([toys.OldStep()], "Toy")
    batch.reset([0])
    with pytest.raises(EnvironmentFailed, match=r"step must return .*truncated, info \(5 values\); got 4"):
        batch.step(None, np.zeros((1, 1), np.int32))
    kinds: list[tuple[Callable[[], Any], str]] = [
        (toys.OldReset, r"reset must return observation, info \(2 values\); got ndarray"),
        (toys.NoInfo, "reset must return a dictionary as info; got No"),
        (lambda: toys.Toy(reset_fails=(0,)), "environment 0 failed: RuntimeError: reset 0 fails"),
    ]
    for kind, message in kinds:
        with pytest.raises(EnvironmentFailed, match=message):
            ScalarBatch([kind()], "Toy").reset([0])
