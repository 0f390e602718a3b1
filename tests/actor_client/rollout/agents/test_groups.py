"""Tests agents in groups."""

from __future__ import annotations

import numpy as np
from rollcast.chunks import Chunk
from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.assignment import Seat
from tests.actor_client.rollout.agents.driver import SPEC, Driver, story
from tests.actor_client.rollout.harness import KeepingLink, limits

CUT, TERMINATED, TRUNCATED = SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED
MATES = {1: 5, 2: 5}


def stood(driver: Driver) -> list[GroupEnd]:
    """Returns how the group stood at the end of each segment that arrived."""
    return [GroupEnd(end) for end in driver.column("group_end")]


def test_mates_are_cut_together() -> None:
    """The time horizon of one agent cuts its group mates; other agents are not affected."""
    driver = Driver(KeepingLink(SPEC, time_horizon=3))
    driver.ask({1: 10.0, 9: 90.0}, groups=MATES)
    driver.ask({1: 11.0, 2: 20.0, 9: 91.0}, groups=MATES)
    driver.ask({1: 12.0, 2: 21.0}, groups=MATES)
    driver.ask({1: 13.0}, groups=MATES)
    assert story(driver) == [([10, 11, 12, 13], CUT), ([20, 21], CUT)]
    driver.ask({1: 14.0, 2: 22.0, 9: 92.0}, groups=MATES)
    driver.end({1: 15.0, 2: 23.0, 9: 93.0})

    assert sorted(story(driver)[2:]) == [
        ([13, 14, 15], TERMINATED),
        ([21, 22, 23], TERMINATED),
        ([90, 91, 92, 93], TERMINATED),
    ]
    groups = driver.column("group")
    assert len(set(groups)) == 2
    assert groups.count(0) == 1
    assert len(set(driver.column("group_episode"))) == 2


def test_rows_of_mates_are_aligned() -> None:
    """Rows that started in one message have the same number; a new episode of the group starts at 0."""
    driver = Driver()
    driver.ask({1: 10.0}, groups=MATES)
    driver.ask({1: 11.0, 2: 20.0}, groups=MATES)
    driver.ask({2: 21.0}, groups=MATES)
    driver.ask({3: 0.0})
    driver.ask({1: 12.0, 2: 22.0}, groups=MATES)
    driver.end({1: 13.0, 2: 23.0})
    driver.ask({1: 30.0, 2: 40.0}, groups=MATES)
    driver.end({1: 31.0, 2: 41.0})

    steps = dict(zip([seen for (seen,) in driver.column("obs/state")], driver.column("group_step"), strict=True))
    assert steps == {10: 0, 11: 1, 12: 3, 20: 1, 21: 2, 22: 3, 30: 0, 40: 0}
    assert len(set(driver.column("group_episode"))) == 2
    assert len(set(driver.column("group"))) == 1


def test_who_ends_early_travels_with_the_mates() -> None:
    """An agent that dies early is terminated, and its segment waits for the group's next cut or end."""
    driver = Driver(KeepingLink(SPEC, time_horizon=4, limits=limits(age=0.01)))
    for step in range(2):
        driver.ask({1: 10.0 + step, 2: 20.0 + step}, groups=MATES)
    driver.end({1: 12.0})
    for step in range(2, 4):
        driver.now += 1.0
        driver.ask({2: 20.0 + step}, groups=MATES)
    assert [chunk.rows for chunk in driver.link.chunks] == [0]
    assert driver.recorder.open_steps == 5
    driver.ask({2: 24.0}, groups=MATES)

    assert story(driver) == [([10, 11, 12], TERMINATED), ([20, 21, 22, 23, 24], CUT)]
    assert [chunk.segments for chunk in driver.link.chunks] == [0, 2]
    assert stood(driver) == [GroupEnd.CONTINUES, GroupEnd.CONTINUES]
    driver.ask({2: 25.0}, groups=MATES)
    driver.end({2: 26.0}, cut_off=[2])
    assert story(driver)[2:] == [([24, 25, 26], TRUNCATED)]
    assert stood(driver)[2:] == [GroupEnd.TRUNCATED]
    assert len(set(driver.column("group_episode"))) == 1


def test_the_end_of_a_group_is_that_of_its_last_agents() -> None:
    """A group ends with its last agents: terminated, or truncated; the next one is another episode."""
    driver = Driver()
    for cut_off in ([], [1, 2], [2]):
        driver.ask({1: 10.0, 2: 20.0}, groups=MATES)
        driver.end({1: 11.0, 2: 21.0}, cut_off=cut_off)

    expected = [GroupEnd.TERMINATED] * 2 + [GroupEnd.TRUNCATED] * 4
    assert stood(driver) == expected
    assert driver.column("end") == [TERMINATED] * 2 + [TRUNCATED] * 2 + [TERMINATED, TRUNCATED]
    first, *_ = episodes = driver.column("group_episode")
    assert episodes == [first, first, first + 1, first + 1, first + 2, first + 2]


def test_an_agent_that_moves_is_cut_with_those_it_leaves() -> None:
    """An agent that changes its group is cut with the mates it leaves."""
    driver = Driver()
    driver.ask({1: 10.0, 2: 20.0}, groups=MATES)
    driver.ask({1: 11.0, 2: 21.0}, groups=MATES)
    driver.ask({1: 12.0, 2: 22.0}, groups={1: 6, 2: 5})
    driver.ask({1: 13.0, 2: 23.0}, groups={2: 5})
    driver.end({1: 14.0})
    driver.end({2: 24.0})

    assert story(driver) == [
        ([10, 11, 12], CUT),
        ([20, 21, 22], CUT),
        ([12, 13], CUT),
        ([13, 14], TERMINATED),
        ([22, 23, 24], TERMINATED),
    ]
    groups = driver.column("group")
    assert groups[0] == groups[1] == groups[4]
    assert groups[2] not in {0, groups[0]}
    assert groups[3] == 0
    assert stood(driver) == [GroupEnd.CONTINUES] * 4 + [GroupEnd.TERMINATED]


def test_a_segment_that_is_held_is_not_lost_with_its_environment() -> None:
    """When an environment is lost, open rows are discarded and closed segments of its groups are sent."""
    driver = Driver()
    driver.ask({1: 10.0, 2: 20.0}, groups=MATES)
    driver.ask({1: 11.0, 2: 21.0}, groups=MATES)
    driver.end({1: 12.0})
    driver.recorder.drop_env(0, "player_lost")

    assert story(driver) == [([10, 11, 12], TERMINATED)]
    assert driver.link.books.view().discarded == {"player_lost": 1}
    assert driver.recorder._pool.used == 0


def test_a_segment_that_is_held_grows_no_older_than_the_lag_allows() -> None:
    """A swap cuts the mates of a waiting segment that would become too old; a lost session discards it."""
    driver = Driver(KeepingLink(SPEC, max_policy_lag=2))
    driver.ask({1: 10.0, 2: 20.0}, groups=MATES)
    driver.end({1: 11.0})
    driver.recorder.swap(1, 1)
    driver.ask({2: 21.0}, groups=MATES)
    assert story(driver) == []
    driver.recorder.swap(1, 2)
    assert story(driver) == [([10, 11], TERMINATED), ([20, 21], CUT)]

    driver.ask({2: 22.0, 3: 30.0}, groups={2: 5, 3: 5})
    driver.end({2: 23.0})
    driver.recorder.discard("session_lost")
    assert driver.link.books.view().discarded == {"session_lost": 2}
    assert driver.recorder.open_steps == 0


def test_a_mate_that_seldom_asks_holds_nobody_up() -> None:
    """Segments of mates that rarely ask are held only as long as credit suffices."""
    driver = Driver(KeepingLink(SPEC, time_horizon=8))
    driver.ask({1: 0.0}, groups={1: 5})
    for identity in range(2, 40):
        driver.ask({identity: 0.0}, groups={identity: 5})
        driver.ask({identity: 1.0}, groups={identity: 5})
        assert driver.recorder.open_steps - driver.recorder._outbox.rows + driver.recorder.agents <= 2 * 8
        driver.end({identity: 2.0})
    driver.end({1: 1.0})

    assert sum(map(len, driver.pieces())) == 38 * 2 + 1
    assert driver.recorder.most_agents == 2
    assert len(set(driver.column("group_episode"))) == 1


def test_a_group_is_cut_before_it_exceeds_a_chunk() -> None:
    """Mates always share a chunk: the whole group is cut when another row of each would not fit."""
    driver = Driver(KeepingLink(SPEC, time_horizon=4, limits=limits(steps=10)))
    groups = {1: 1, 2: 1, 3: 2, 4: 2, 5: 2}
    for _ in range(5):
        driver.ask(dict.fromkeys([90, 1, 2, 3, 4, 5], 0.0), groups=groups)
    driver.recorder.flush()

    assert [members(chunk) for chunk in driver.link.chunks] == [{2: 3}, {0: 1}, {1: 2}]
    assert [chunk.rows for chunk in driver.link.chunks] == [9, 4, 8]


def test_segments_that_wait_for_mates_count_when_a_group_is_cut() -> None:
    """The rows of a mate whose episode ended early travel in the chunk of the others."""
    driver = Driver(KeepingLink(SPEC, time_horizon=100, limits=limits(steps=10)))
    groups = {1: 1, 2: 1, 3: 1}
    for _ in range(3):
        driver.ask(dict.fromkeys([1, 2, 3], 0.0), groups=groups)
    driver.end({3: 0.0})
    for _ in range(3):
        driver.ask(dict.fromkeys([1, 2], 0.0), groups=groups)
    driver.recorder.flush()

    assert [chunk.columns["length"].tolist() for chunk in driver.link.chunks] == [[3, 3, 3]]
    assert stood(driver) == [GroupEnd.CONTINUES] * 3


def test_a_group_larger_than_any_chunk_is_split() -> None:
    """If one row of each mate exceeds a chunk, mates share as few chunks as possible."""
    driver = Driver(KeepingLink(SPEC, time_horizon=4, limits=limits(steps=2)))
    groups = {1: 1, 2: 1, 3: 1}
    for _ in range(3):
        driver.ask(dict.fromkeys([1, 2, 3], 0.0), groups=groups)
    driver.recorder.flush()

    assert [chunk.rows for chunk in driver.link.chunks] == [2, 1, 2, 1]


def members(chunk: Chunk) -> dict[int, int]:
    """Returns how many segments each group has in a chunk."""
    groups = chunk.columns.get("group", np.zeros(chunk.segments, np.uint64))
    found, counts = np.unique(groups, return_counts=True)
    return dict(zip((found & 0xFFFFFFFF).tolist(), counts.tolist(), strict=True))


def test_records_of_matches_tell_whether_the_group_ended() -> None:
    """In a match, a record says whether mates are left, or how the group's episode ended with it."""
    driver = Driver()
    driver.recorder.assign(Seat(3, 0), told_by=1)
    for cut_off in ((), (2,)):
        driver.ask({1: 10.0, 2: 20.0, 9: 90.0}, groups=MATES)
        driver.end({1: 11.0, 9: 91.0})
        driver.ask({2: 21.0}, groups=MATES)
        driver.end({2: 22.0}, cut_off=cut_off)
    continues, ended, cut = GroupEnd.CONTINUES, GroupEnd.TERMINATED, GroupEnd.TRUNCATED
    assert driver.column("episode/group_end") == [continues, continues, ended, continues, continues, cut]
    groups = driver.column("episode/group")
    assert [bool(group) for group in groups] == [True, False, True] * 2
