"""Tests recordings of agents that arrive, ask and leave."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.chunks import Chunk
from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.agents.agent import unique_number
from tests.actor_client.rollout.agents.driver import SPEC, Driver, answers, story
from tests.actor_client.rollout.agents.play import Episode, Play, Step
from tests.actor_client.rollout.harness import KeepingLink, limits

CUT, TERMINATED, TRUNCATED = SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED


def test_segments_are_cut_at_the_time_horizon() -> None:
    """Each agent's segments are cut at its own time horizon; the next observation becomes the final one."""
    driver = Driver(KeepingLink(SPEC, time_horizon=3))
    driver.ask({1: 10.0})
    for step in range(1, 8):
        driver.ask({1: 10.0 + step, 2: 20.0 + step})
    driver.end({1: 18.0, 2: 28.0})

    assert story(driver) == [
        ([10, 11, 12, 13], CUT),
        ([21, 22, 23, 24], CUT),
        ([13, 14, 15, 16], CUT),
        ([24, 25, 26, 27], CUT),
        ([16, 17, 18], TERMINATED),
        ([27, 28], TERMINATED),
    ]
    assert [piece.first_step for piece in driver.pieces()] == [0, 0, 3, 3, 6, 6]


def test_agents_of_all_environments_have_numbers_of_their_own() -> None:
    """The same id in two environments is two agents; ids may be negative."""
    driver = Driver()
    for env in (0, 1):
        driver.ask({-1: 10.0, 7: 20.0}, env=env)
        driver.end({-1: 11.0, 7: 21.0}, env=env)

    assert driver.column("env") == [0, 0, 1, 1]
    assert len(set(driver.column("agent"))) == 4
    assert driver.column("episode/agent") == driver.column("agent")


def test_who_asks_twice_is_answered_once() -> None:
    """A second question before the answer replaces the first; unknown agents that end are ignored."""
    driver = Driver()
    first = driver.ask({1: 10.0}, act=False)
    driver.ask({1: 11.0})
    driver.recorder.act(first, answers(1))
    assert driver.recorder.in_flight == 1
    driver.end({1: 12.0, 99: 0.0})
    driver.end({99: 0.0}, env=5)

    assert story(driver) == [([11, 12], TERMINATED)]
    assert driver.recorder._pool.used == 0


def test_a_policy_that_is_swapped_in_cuts_what_would_grow_too_old() -> None:
    """A swap cuts segments that would become too old; younger ones continue."""
    driver = Driver(KeepingLink(SPEC, max_policy_lag=2))
    driver.ask({1: 10.0, 2: 20.0})
    driver.ask({1: 11.0, 2: 21.0})
    driver.recorder.swap(1, 1)
    driver.ask({1: 12.0, 2: 22.0, 3: 30.0})
    waiting = driver.ask({1: 13.0, 3: 31.0}, act=False)
    driver.recorder.swap(1, 2)
    assert story(driver) == [([10, 11, 12, 13], CUT), ([20, 21, 22], CUT)]
    driver.recorder.act(waiting, answers(2))
    driver.ask({1: 14.0, 2: 23.0, 3: 32.0})
    driver.end({1: 15.0, 2: 24.0, 3: 33.0})

    assert story(driver)[2:] == [([13, 14, 15], TERMINATED), ([22, 23, 24], TERMINATED), ([30, 31, 32, 33], TERMINATED)]
    assert [piece.versions for piece in driver.pieces()][2:] == [(2, 2), (1, 2), (1, 2, 2)]


def test_who_has_no_rows_cuts_nobody() -> None:
    """An agent whose segment has no rows does not cause a cut at a swap."""
    driver = Driver(KeepingLink(SPEC, max_policy_lag=1))
    driver.ask({1: 10.0, 2: 20.0}, groups={1: 5, 2: 5})
    driver.ask({1: 11.0}, groups={1: 5})
    driver.recorder.swap(1, 1)
    for step in range(12, 16):
        driver.ask({1: float(step)}, groups={1: 5})

    assert story(driver) == [([10, 11], CUT), ([11, 12], CUT)]


def test_masks_travel_only_where_something_is_forbidden() -> None:
    """A chunk has masks only if one of its rows forbids something."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2))
    for step in range(3):
        driver.ask({1: 10.0 + step})
    driver.recorder.flush()
    driver.ask({1: 13.0}, masks=[[0, 1]])
    driver.ask({1: 14.0})
    driver.recorder.flush()
    driver.ask({1: 15.0})
    driver.ask({1: 16.0}, masks=[[0, 1]])
    driver.recorder.flush()

    free, masked, final = driver.link.chunks
    assert not {"action_mask", "final_action_mask"} & free.columns.keys()
    assert masked.columns["action_mask"].tolist() == [[1, 1], [0, 1]]
    assert "final_action_mask" not in masked.columns
    assert final.columns["final_action_mask"].tolist() == [[0, 1]]
    assert "action_mask" not in final.columns


def test_group_rewards_travel_without_groups_too() -> None:
    """Group rewards are sent even without groups; the column is absent if all are 0."""
    driver = Driver()
    driver.ask({1: 10.0})
    driver.end({1: 11.0})
    driver.recorder.flush()
    driver.ask({1: 20.0})
    driver.ask({1: 21.0}, group_reward=2.0)
    driver.end({1: 22.0}, group_reward=0.5)
    driver.recorder.flush()

    plain, shared = driver.link.chunks
    assert not {"group_reward", "episode/group_return", "group", "group_step"} & plain.columns.keys()
    assert shared.columns["group_reward"].tolist() == [2.0, 0.5]
    assert shared.columns["episode/group_return"].tolist() == [2.5]
    assert shared.columns["episode/last_group_reward"].tolist() == [0.5]


def test_a_chunk_is_sent_when_it_is_large_or_old_enough() -> None:
    """A chunk is sent immediately when large enough, and by age with the next message or poll."""
    driver = Driver(KeepingLink(SPEC, time_horizon=2, limits=limits(steps=4, age=0.03)))
    for step in range(5):
        driver.ask({1: 10.0 + step})
    assert [chunk.rows for chunk in driver.link.chunks] == [4]
    driver.ask({1: 15.0})
    driver.ask({1: 16.0})
    driver.now += 0.02
    driver.recorder.poll()
    assert len(driver.link.chunks) == 1
    driver.now += 0.02
    driver.recorder.poll()
    assert [chunk.rows for chunk in driver.link.chunks] == [4, 2]
    assert driver.link.chunks[1].age_seconds == pytest.approx(0.04)
    assert [chunk.agents for chunk in driver.link.chunks] == [1, 1]


SHARES = st.sampled_from([0.0, 0.05, 0.3])
RARE = st.sampled_from([0.0, 0.0, 0.05])
CASES = st.builds(
    SimpleNamespace,
    seed=st.integers(0, 2**32 - 1),
    envs=st.integers(1, 3),
    identities=st.integers(1, 6),
    messages=st.integers(1, 40),
    horizon=st.integers(1, 12),
    lag=st.sampled_from([0, 1, 2, 5]),
    cut_at_swap=st.booleans(),
    chunk_limits=st.builds(
        limits,
        target=st.sampled_from([1, 500, 5000, 1 << 18]),
        largest=st.sampled_from([10_500, 12_000, 1 << 22]),
        steps=st.sampled_from([0, 3, 50]),
        age=st.sampled_from([0.5, 5.0, 1e9]),
    ),
    groups=st.sampled_from([0, 0, 1, 2]),
    end_share=SHARES,
    swap_share=SHARES,
    flush_share=SHARES,
    fault_share=RARE,
    loss_share=RARE,
)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_rows_segments_and_books_are_what_happened(case: SimpleNamespace) -> None:
    """Each row arrives once with its action, reward and version, in segments that are whole and end correctly.

    The books balance after each message, no limit of a chunk is passed, and no row of the pool is forgotten.
    """
    play = Play(case)
    play.run()

    arrived = [row for chunk in play.link.chunks for row in check_chunk(play, chunk)]
    assert len(arrived) == len(set(arrived))
    books = [book.view() for book in (play.link.books, *play.old_books)]
    assert sum(book.produced for book in books) <= len(play.taken)
    assert sum(book.unacked for book in books) == len(arrived)
    assert play.link.books.view().open == 0
    check_records(play)
    for env in range(case.envs):
        play.recorder.drop_env(env, "reset")
    assert play.recorder._pool.used == 0
    assert not play.recorder._waiting


@settings(max_examples=30, deadline=None)
@given(CASES)
def test_nothing_is_lost_without_a_loss(case: SimpleNamespace) -> None:
    """Without faults and losses, every row, episode and statistic arrives."""
    play = Play(SimpleNamespace(**{**vars(case), "fault_share": 0.0, "loss_share": 0.0}))
    play.run()

    arrived = {row for chunk in play.link.chunks for row in check_chunk(play, chunk)}
    assert arrived == set(play.taken)
    assert play.link.books.view().discarded == {}
    assert sum(chunk.episodes for chunk in play.link.chunks) == len(play.ended)
    sent = [entry for chunk in play.link.chunks for entry in statistics(chunk)]
    assert sent == play.stats


def check_chunk(play: Play, chunk: Chunk) -> list[float]:
    """Checks all segments of a chunk; returns what was seen at each of its rows."""
    columns, case = chunk.columns, play.case
    found, begin = [], 0
    for index in range(chunk.segments):
        end = begin + int(columns["length"][index])
        seen = columns["obs/id"][begin:end, 0].tolist()
        steps = [play.taken[number] for number in seen]
        assert len(steps) <= min(case.horizon, play.recorder.horizon)
        check_rows(chunk, begin, steps)
        check_segment(chunk, index, steps)
        versions = [step.version for step in steps]
        assert {step.generation for step in steps} == {chunk.generation}
        if case.cut_at_swap:
            assert len(set(versions)) == 1
        elif case.lag:
            assert max(versions) - versions[0] < case.lag
        found += seen
        begin = end
    return found


def check_rows(chunk: Chunk, begin: int, steps: list[Step]) -> None:
    """Checks that each row holds what one agent observed, did and received."""
    columns = chunk.columns
    rows = slice(begin, begin + len(steps))
    offsets = columns.get("version_offset", np.zeros(chunk.rows, np.uint32))[rows]
    assert [chunk.base_version + int(offset) for offset in offsets] == [step.version for step in steps]
    assert (columns["obs/wide"][rows] == np.array([step.seen % 251 for step in steps])[:, None, None]).all()
    assert columns["discrete_action"][rows, 1].tolist() == [step.action for step in steps]
    assert (columns["continuous_action"][rows, 0] * 8).tolist() == [step.action for step in steps]
    assert columns["log_prob"][rows, 0].tolist() == [-step.version for step in steps]
    assert columns["reward"][rows].tolist() == [step.reward for step in steps]
    group_rewards = columns.get("group_reward", np.zeros(chunk.rows))[rows]
    assert group_rewards.tolist() == [step.group_reward for step in steps]
    masks = columns.get("action_mask", np.ones((chunk.rows, 5), np.uint8))[rows]
    assert [tuple(mask) for mask in masks.tolist()] == [step.masks for step in steps]


def check_segment(chunk: Chunk, index: int, steps: list[Step]) -> None:
    """Checks that a segment is consecutive steps of one agent and ends as its last step did."""
    columns = chunk.columns
    of = {name: columns[name][index].item() for name, role in chunk.roles.items() if role.name == "SEGMENT"}
    episode, last = steps[0].episode, steps[-1]
    assert last.next_seen is not None
    assert steps == episode.steps[steps[0].index : steps[0].index + len(steps)]
    assert (of["env"], of["agent"]) == (episode.env, unique_number(episode.env, episode.identity))
    # The last segment of one that left may have been cut before, by its length.
    end = SegmentEnd.CUT if episode.has_left and of["end"] == SegmentEnd.CUT else last.end
    assert (of["first_step"], of["end"]) == (steps[0].index, end)
    assert columns["final_obs/id"][index, 0] == last.next_seen
    assert (columns["final_obs/wide"][index] == last.next_seen % 251).all()
    groups = {step.group for step in steps}
    assert len(groups) == 1
    group = groups.pop()
    assert of.get("group", 0) == (unique_number(episode.env, group) if group else 0)
    assert bool(of.get("group_episode", 0)) == bool(group)
    expected = GroupEnd.CONTINUES if end is SegmentEnd.CUT else episode.group_end
    assert of.get("group_end", GroupEnd.CONTINUES) == (expected if group else GroupEnd.CONTINUES)


def check_records(play: Play) -> None:
    """Checks that each record belongs to an ended episode and occurs once."""
    found: set[int] = set()
    by_revision = {(episode.env, episode.identity, episode.revision): episode for episode in play.ended}
    numbers = []
    for chunk in play.link.chunks:
        for row in range(chunk.episodes):
            names = [name for name, role in chunk.roles.items() if role.name == "EPISODE"]
            of = {name.partition("/")[2]: chunk.columns[name][row].item() for name in names}
            identity = of["agent"] & 0xFFFFFFFF
            episode = by_revision[of["env"], identity, of["settings_revision"]]
            assert record(episode) == {name: of[name] for name in record(episode)}
            assert id(episode) not in found
            found.add(id(episode))
            numbers.append(of["episode"])
    assert len(numbers) == len(set(numbers))


def record(episode: Episode) -> dict[str, float]:
    """Returns what the record of an episode must say."""
    assert episode.is_known
    last = episode.steps[-1]
    assert episode.end is not None
    assert episode.first_version is not None
    return {
        "return": sum(step.reward for step in episode.steps),
        "group_return": sum(step.group_reward for step in episode.steps),
        "length": len(episode.steps),
        "end": episode.end,
        "last_reward": last.reward,
        "last_group_reward": last.group_reward,
        "first_version": episode.first_version,
        "last_version": episode.last_version,
    }


def statistics(chunk: Chunk) -> list[tuple[str, int, float]]:
    """Returns key, environment and value of each record."""
    if not chunk.stat_keys:
        return []
    columns = chunk.columns
    rows = zip(columns["stat/key"].tolist(), columns["stat/env"].tolist(), columns["stat/value"].tolist(), strict=True)
    return [(chunk.stat_keys[key], env, value) for key, env, value in rows]
