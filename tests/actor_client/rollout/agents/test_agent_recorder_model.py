"""The recorder of agents against what really happened, over random messages, swaps, limits and losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.chunks import Chunk
from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.agents.agent import unique_number
from tests.actor_client.rollout.agents.play import Case, Episode, Play, Step
from tests.actor_client.rollout.harness import limits

SHARES = st.sampled_from([0.0, 0.05, 0.3])
RARE = st.sampled_from([0.0, 0.0, 0.05])
CASES = st.builds(
    Case,
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
def test_rows_segments_and_books_are_what_happened(case: Case) -> None:
    """Each row that arrives was taken once, with its own action, reward and version; segments are whole and end rightly.

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
def test_nothing_is_lost_without_a_loss(case: Case) -> None:
    """Without faults and losses every completed row arrives, every ended episode is reported, and every statistic."""
    play = Play(replace(case, fault_share=0.0, loss_share=0.0))
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
    """Each row holds what one agent saw, did and got."""
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
    """A segment is consecutive steps of one agent, and ends as the last of them did."""
    columns = chunk.columns
    of = {name: columns[name][index].item() for name, role in chunk.roles.items() if role.name == "SEGMENT"}
    episode, last = steps[0].episode, steps[-1]
    assert last.next_seen is not None
    assert steps == episode.steps[steps[0].index : steps[0].index + len(steps)]
    assert (of["env"], of["agent"]) == (episode.env, unique_number(episode.env, episode.identity))
    assert (of["first_step"], of["end"]) == (steps[0].index, last.end)
    assert columns["final_obs/id"][index, 0] == last.next_seen
    assert (columns["final_obs/wide"][index] == last.next_seen % 251).all()
    groups = {step.group for step in steps}
    assert len(groups) == 1
    group = groups.pop()
    assert of.get("group", 0) == (unique_number(episode.env, group) if group else 0)
    assert bool(of.get("group_episode", 0)) == bool(group)
    expected = GroupEnd.CONTINUES if last.end is SegmentEnd.CUT else episode.group_end
    assert of.get("group_end", GroupEnd.CONTINUES) == (expected if group else GroupEnd.CONTINUES)


def check_records(play: Play) -> None:
    """Each record is that of an episode that ended, and is there once."""
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
    """What the record of an episode must say."""
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
    """Key, environment and value of each record."""
    if not chunk.stat_keys:
        return []
    columns = chunk.columns
    rows = zip(columns["stat/key"].tolist(), columns["stat/env"].tolist(), columns["stat/value"].tolist(), strict=True)
    return [(chunk.stat_keys[key], env, value) for key, env, value in rows]
