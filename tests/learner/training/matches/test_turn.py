"""Tests whose turn it is to learn."""

from __future__ import annotations

import pytest

from learner.training.matches.turn import Interval, TeamQueue


def of(*teams: int) -> TeamQueue:
    """Returns a queue with these teams."""
    queue = TeamQueue()
    queue.add(teams)
    return queue


def test_teams_take_turns() -> None:
    """Each team learns once before the first learns again; new teams are appended."""
    queue = of(2, 0, 1)
    seen = [queue.on_turn]
    for _ in range(3):
        assert queue.change(lambda _: True)
        seen.append(queue.on_turn)
    assert seen == [0, 1, 2, 0]
    queue.add([5, 1])
    assert queue.teams == (0, 1, 2, 5)


def test_teams_that_cannot_learn_are_passed_over() -> None:
    """A team whose behaviors have finished gets no turn; without any other the team stays."""
    queue = of(0, 1, 2)
    assert queue.change(lambda team: team == 2)
    assert queue.on_turn == 2
    assert not queue.change(lambda _: False)
    assert queue.on_turn == 2
    assert sorted(queue.teams) == [0, 1, 2]


def test_one_team_stays() -> None:
    """A single team keeps its turn; without teams there is none."""
    assert not of(3).change(lambda _: True)
    assert not TeamQueue().change(lambda _: True)
    assert TeamQueue().on_turn is None


def test_a_queue_continues() -> None:
    """A restored queue has the turn and the order of the saved one."""
    queue, restored = of(0, 1, 2), TeamQueue()
    queue.change(lambda _: True)
    restored.load_state_dict(queue.state_dict())
    restored.add([0, 1, 2])
    assert restored.teams == queue.teams == (1, 2, 0)


@pytest.mark.parametrize("teams", [[0, 0], ["a"], [2**40], [True]])
def test_a_damaged_queue_is_refused(teams: list[object]) -> None:
    """A state with impossible teams is refused."""
    with pytest.raises(ValueError, match="team"):
        TeamQueue().load_state_dict({"teams": teams})


def test_intervals_count_from_the_last_time() -> None:
    """An interval is due once its steps have passed, and again after as many more."""
    interval = Interval(100)
    assert [interval.is_due(now) for now in (0, 99, 100)] == [False, False, True]
    interval.restart(130)
    assert not interval.is_due(229)
    restored = Interval(100)
    restored.load_state_dict(interval.state_dict())
    assert restored.is_due(230)
    assert [restored.is_due(now) for now in (60, 159, 160)] == [False, False, True]  # from an earlier checkpoint
