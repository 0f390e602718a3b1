"""Tests that a demonstration file holds the steps of environments, for every way of resetting them."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from rollcast.demonstrations.reading import read_demonstration
from rollcast.demonstrations.writing import ActionUnits

from actor_client.demos.batch import recorded
from actor_client.demos.recorder import ENOUGH
from actor_client.envs.base import EnvBatch, StepResult
from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.demos.environments import Counting


def counting(*lengths: int, truncates: bool = False, nan_at: int = -1) -> EnvBatch:
    """Returns environments with episodes of these lengths."""
    return ScalarBatch([Counting(steps, truncates=truncates, nan_at=nan_at) for steps in lengths], "Counting")


def stepped(batch: EnvBatch, steps: int) -> list[StepResult]:
    """Steps all environments; the action is 0.5 times the step's number plus one."""
    actions = 0.5 * (1 + np.arange(batch.num_envs, dtype=np.float32))[:, None]
    return [batch.step(actions, None) for _ in range(steps)]


def test_steps_and_ends(tmp_path: Path) -> None:
    """Each step has the observation before it, its action and its reward; ends keep the last observation."""
    path = tmp_path / "two.demo"
    with recorded(path, "Counting", episodes=2) as wrap:
        batch = wrap(counting(3, truncates=True))
        batch.reset([1])
        stepped(batch, 6)
    spec = batch.spec
    found = read_demonstration(path, spec)
    (seen,) = found.observations
    assert seen[found.rows].ravel().tolist() == [0, 1, 2, 0, 1, 2]
    assert seen[found.next_rows].ravel().tolist() == [1, 2, 3, 1, 2, 3]
    assert found.rewards.tolist() == [0.5] * 6
    assert found.truncated.tolist() == [False, False, True] * 2
    assert not found.terminated.any()
    assert found.continuous is not None
    assert found.continuous.ravel().tolist() == [0.25] * 6  # of the bounds [-2, 2]
    assert ActionUnits(spec.action).actions(found.continuous).ravel().tolist() == [0.5] * 6


def test_the_first_to_begin_not_the_first_to_end(tmp_path: Path) -> None:
    """Episodes are recorded in the order of their starts, not of their ends."""
    path, reasons = tmp_path / "fair.demo", list[str]()
    with recorded(path, "Counting", episodes=2, on_enough=reasons.append) as wrap:
        batch = wrap(counting(2, 7))
        batch.reset([1, 2])
        stepped(batch, 6)
        assert not reasons
        stepped(batch, 1)
        assert reasons == [ENOUGH]
        stepped(batch, 9)
    found = read_demonstration(path, batch.spec)
    assert (found.episodes, len(found.rows)) == (2, 9)
    assert reasons == [ENOUGH]


def test_what_began_anew_is_left_out(tmp_path: Path) -> None:
    """Episodes that a reset or a failure interrupts are left out, and others are recorded instead."""
    path = tmp_path / "anew.demo"

    class Failing(Counting):
        def step(self, action: object) -> object:  # type: ignore[override]
            raise RuntimeError("fell over")

    with recorded(path, "Counting", episodes=1) as wrap:
        batch = wrap(counting(3))
        batch.reset([1])
        stepped(batch, 2)
        batch.reset([2])
        stepped(batch, 1)
        broken = wrap(ScalarBatch([Failing()], "Counting"))
        broken.reset([3])
        with pytest.raises(EnvironmentFailed):
            stepped(broken, 1)
        batch.reset([4])
        stepped(batch, 3)
    assert len(read_demonstration(path, batch.spec).rows) == 3


def test_episodes_that_never_end(tmp_path: Path) -> None:
    """If no episode ended, all are truncated at the end; otherwise unfinished ones are left out."""
    for steps, rows, truncated in ((4, 4, 1), (6, 5, 0)):
        path = tmp_path / f"{steps}.demo"
        with recorded(path, "Counting") as wrap:
            batch = wrap(counting(5))
            batch.reset([1])
            stepped(batch, steps)
        found = read_demonstration(path, batch.spec)
        assert (len(found.rows), int(found.truncated.sum())) == (rows, truncated)


def test_what_is_not_finite_is_left_out(tmp_path: Path) -> None:
    """An episode with NaN is not recorded, and a file without episodes is removed."""
    path = tmp_path / "nan.demo"
    with recorded(path, "Counting") as wrap:
        batch = wrap(counting(3, nan_at=2))
        batch.reset([1])
        stepped(batch, 6)
    assert not path.exists()
    with recorded(path, "Counting") as wrap:
        batch = wrap(counting(3, nan_at=3))
        batch.reset([1])
        stepped(batch, 3)
    assert not path.exists()


def test_ignored_actions_are_no_steps(tmp_path: Path) -> None:
    """Steps of a vector environment that ignore the action are not recorded."""
    path = tmp_path / "vector.demo"
    environment = gymnasium.vector.SyncVectorEnv([lambda: Counting(2), lambda: Counting(3)])
    with recorded(path, "Counting") as wrap:
        batch = wrap(VectorBatch(environment, "Counting"))
        batch.reset([1, 2])
        stepped(batch, 8)
        batch.close()
    found = read_demonstration(path, batch.spec)
    (seen,) = found.observations
    assert (seen[found.next_rows] - seen[found.rows]).ravel().tolist() == [1.0] * len(found.rows)
    lengths = sorted(np.diff(np.flatnonzero([True, *found.terminated])).tolist())
    assert lengths == [2, 2, 2, 3, 3]


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    """An existing file is not overwritten; the error is one line with a documented exit code."""
    path = tmp_path / "kept.demo"
    path.write_bytes(b"precious")
    with (
        pytest.raises(ActorError, match=r"--record .*kept\.demo: the file exists; choose another name") as caught,
        recorded(path, "Counting") as wrap,
    ):
        wrap(counting(3))
    assert caught.value.exit_code is ExitCode.NOT_WRITTEN
    assert path.read_bytes() == b"precious"
    with recorded(None, "Counting") as wrap:
        bare = counting(3)
        assert wrap(bare) is bare
