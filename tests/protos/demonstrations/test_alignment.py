"""Tests how rewards, ends and actions are assigned to steps."""

from pathlib import Path

import numpy as np
from rollcast.demonstrations.reading import read_demonstration

from tests.protos.demonstrations.recordings import AXIS, BRANCH, demonstration, record


def test_reward_and_end_come_with_the_next_record(tmp_path: Path) -> None:
    """In ML-Agents' layout, a step's reward and end are in the next record.

    Episode 1 sees 10, 11, 12: it acts 0.1 and 0.2, is given 1 and 2, and ends by itself. Episode 2 sees 20, 21: it acts
    0.3, is given 3 and is interrupted. 77 and 88 are rewards from before, as Unity sums them up until the first
    decision.
    """
    path = demonstration(
        tmp_path / "two.demo",
        AXIS,
        [
            record(10, axes=[0.1], reward=77),
            record(11, axes=[0.2], reward=1, group_reward=5),
            record(12, True, reward=2, group_reward=6),
            record(20, axes=[0.3], reward=88),
            record(21, True, reward=3, max_step_reached=True),
        ],
    )
    found = read_demonstration(path, AXIS)
    (seen,) = found.observations
    assert seen[found.rows].ravel().tolist() == [10, 11, 20]
    assert seen[found.next_rows].ravel().tolist() == [11, 12, 21]
    assert found.continuous is not None
    assert np.allclose(found.continuous.ravel(), [0.1, 0.2, 0.3])
    assert found.rewards.tolist() == [1, 2, 3]
    assert found.group_rewards.tolist() == [5, 6, 0]
    assert found.terminated.tolist() == [False, True, False]
    assert found.truncated.tolist() == [False, False, True]
    assert (found.episodes, found.unfinished, found.paired.late) == (2, 0, False)


def test_unitys_recorder_is_one_decision_late(tmp_path: Path) -> None:
    """In Unity's layout, which writes a record before its decision, actions are read from the next record."""
    path = demonstration(
        tmp_path / "late.demo",
        BRANCH,
        [
            record(10, choices=[0]),
            record(11, choices=[3], reward=1),
            record(12, True, choices=[4], reward=2),
            record(20, choices=[0]),
            record(21, True, choices=[2], reward=3),
        ],
    )
    found = read_demonstration(path, BRANCH)
    assert found.paired.late
    assert found.discrete is not None
    assert found.discrete.ravel().tolist() == [3, 4, 2]
    assert found.rewards.tolist() == [1, 2, 3]


def test_what_nothing_follows_is_no_step(tmp_path: Path) -> None:
    """The last decision of a stopped recording has no outcome and is no step."""
    path = demonstration(
        tmp_path / "open.demo",
        BRANCH,
        [record(1, choices=[1]), record(2, choices=[2], reward=4), record(3, choices=[3])],
    )
    found = read_demonstration(path, BRANCH, pairing="same_record")
    assert found.discrete is not None
    assert found.discrete.ravel().tolist() == [1, 2]
    assert found.rewards.tolist() == [4, 0]
    assert (found.episodes, found.unfinished) == (0, 1)


def test_agents_may_take_turns(tmp_path: Path) -> None:
    """Records of several agents are distinguished by number, and an end alone is no step."""
    path = demonstration(
        tmp_path / "mixed.demo",
        BRANCH,
        [
            record(10, choices=[1], id=1),
            record(20, choices=[2], id=2),
            record(11, True, reward=5, id=1),
            record(30, True, reward=9, id=3),
            record(21, True, reward=6, id=2),
        ],
    )
    found = read_demonstration(path, BRANCH)
    (seen,) = found.observations
    assert seen[found.rows].ravel().tolist() == [10, 20]
    assert seen[found.next_rows].ravel().tolist() == [11, 21]
    assert found.rewards.tolist() == [5, 6]
