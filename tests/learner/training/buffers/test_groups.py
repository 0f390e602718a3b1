"""Tests groups in chunks and updates with small cases worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rollcast.enums import GroupEnd, SegmentEnd
from rollcast.trajectories import Chunk

from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.columns import on_policy_columns
from learner.training.buffers.groups import GroupPlace, bundles_of, members_of, team_rewards, whole
from learner.training.buffers.layout import segments_of
from tests.learner.training.buffers.chunks import SPEC, make_chunk

CUT, TERMINATED, TRUNCATED = SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED


def place(
    steps: list[int], episode: int, *, end: GroupEnd = GroupEnd.CONTINUES, cut: bool = True, bundle: int = 1
) -> GroupPlace:
    """Makes the position of a segment."""
    return GroupPlace(bundle, episode, end, cut, np.array(steps, np.int64))


def present(places: list[GroupPlace]) -> list[list[int]]:
    """Returns the members of each row, as indices of rows."""
    found = members_of(places)
    return [
        [row for row, there in zip(rows, flags, strict=True) if there]
        for rows, flags in zip(found.rows.tolist(), found.present.tolist(), strict=True)
    ]


def test_agents_without_groups_are_alone() -> None:
    """Each row has only its own agent."""
    assert present([place([0, 1], 1), place([5], 2, bundle=2)]) == [[0], [1], [2], [3], [4]]


def test_mates_are_found_by_their_group_steps() -> None:
    """Rows 0 to 2 and 3 to 5 are two agents with two steps each and a final row; both were cut."""
    assert present([place([4, 5], 1), place([4, 5], 2)]) == [[0, 3], [1, 4], [2, 5], [3, 0], [4, 1], [5, 2]]


def test_a_late_joiner_enters_at_its_step() -> None:
    """The second agent (rows 4 and 5) is absent in the first two steps."""
    assert present([place([0, 1, 2], 1), place([2], 2)]) == [[0], [1], [2, 4], [3, 5], [4, 2], [5, 3]]


def test_an_early_end_bootstraps_from_the_mates_that_remain() -> None:
    """The first agent (rows 0 and 1) dies after its first step: its final row has only the mate's second step."""
    dead = place([0], 1, cut=False)
    assert present([dead, place([0, 1], 2)]) == [[0, 2], [3], [2, 0], [3], [4]]


def test_an_early_end_without_known_mates_is_valued_by_itself() -> None:
    """If no mate's steps are known, the agent's own last observation remains."""
    assert present([place([0], 1, cut=False)]) == [[0], [1]]


def test_the_last_observations_of_an_interrupted_group_count() -> None:
    """Agents whose episodes ended with an interrupted group see one another's last observations."""
    over = GroupEnd.TRUNCATED
    found = present(
        [place([0], 1, cut=False), place([0, 1], 2, end=over, cut=False), place([1], 3, end=over, cut=False)]
    )
    #   rows:        0 1 (final)      2 3 4 (final)      5 6 (final)
    assert found == [[0, 2], [3, 5], [2, 0], [3, 5], [4, 6], [5, 3], [6, 4]]


def test_an_agent_that_begins_again_is_a_mate_of_its_former_episode() -> None:
    """The value of the group after an early end includes the agent's next episode."""
    found = present([place([0], 1, cut=False), place([1], 2), place([0, 1], 3)])
    assert found == [[0, 4], [2, 5], [2, 5], [3, 6], [4, 0], [5, 2], [6, 3]]


def test_two_spans_of_one_episode_are_not_mates() -> None:
    """Two segments of each agent in one chunk: the first bootstraps from the mate's next step, not from its own."""
    found = present([place([0], 1), place([1], 1), place([0], 2), place([1], 2)])
    #   rows:       0 1     2 3     4 5     6 7
    assert found == [[0, 4], [1, 6], [2, 6], [3, 7], [4, 0], [5, 2], [6, 2], [7, 3]]


def test_a_row_stays_in_effect_until_the_next_of_its_agent() -> None:
    """Agents that ask in turn see the mate's latest action."""
    found = present([place([0, 2], 1), place([1, 3], 2)])
    assert found[:2] == [[0], [1, 3]]
    assert found[3:5] == [[3, 0], [4, 1]]


def test_rewards_of_mates_are_added_once() -> None:
    """Own rewards of all present agents are summed; those between two rows of an agent belong to the first."""
    together = [place([0, 1], 1), place([0, 1], 2), place([0], 3, cut=False)]
    rewards = [np.array(values, np.float32) for values in ([1, 2], [10, 20], [100])]
    assert [sums.tolist() for sums in team_rewards(rewards, together)] == [[111, 22], [111, 22], [111]]
    in_turn = [place([0, 2], 1), place([1, 3], 2)]
    rewards = [np.array(values, np.float32) for values in ([1, 2], [10, 20])]
    assert [sums.tolist() for sums in team_rewards(rewards, in_turn)] == [[11, 22], [12, 20]]


def test_a_bundle_that_lacks_a_segment_is_left_out() -> None:
    """Only bundles whose segments are all chosen remain, one after the other."""
    chunk = make_chunk([1] * 6, group=np.array([7, 0, 8, 7, 0, 8], np.uint64))
    bundles = bundles_of(chunk)
    assert bundles.tolist() == [0, 1, 2, 0, 4, 2]
    assert whole(np.arange(6), bundles).tolist() == [0, 3, 1, 2, 5, 4]
    assert whole(np.array([0, 1, 3, 4, 5]), bundles).tolist() == [0, 3, 1, 4]


def grouped(lengths: list[int], groups: list[int], **columns: Any) -> Chunk:
    """Makes a chunk of agents in groups whose episodes all began at step 0."""
    return make_chunk(
        lengths,
        group=np.array(groups, np.uint64),
        episode=np.arange(len(lengths), dtype=np.uint64),
        agent=np.arange(len(lengths), dtype=np.uint64),
        group_step=np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
        **columns,
    )


def filled(*chunks: Chunk, block_rows: int = 16) -> UpdateBuffer:
    """Makes a buffer of groups with chunks."""
    columns = on_policy_columns(SPEC, of_team=True)
    buffer = UpdateBuffer(columns, 100, block_rows, torch.device("cpu"), grouped=True)
    for chunk in chunks:
        parts = segments_of(chunk, grouped=True)
        buffer.add(chunk, parts, whole(np.arange(chunk.segments), bundles_of(chunk)), 0)
    return buffer


def test_an_update_takes_whole_bundles() -> None:
    """No bundle straddles two updates, also where it is larger than a block of the ring."""
    buffer = filled(grouped([2, 2, 1], [7, 8, 7]), grouped([2, 2], [7, 7]), block_rows=4)
    buffer.take(1)
    assert buffer.taken_steps == 3
    assert [segment.steps for segment in buffer.plan().segments] == [2, 1]
    buffer.settle()
    buffer.take(3)
    assert buffer.taken_steps == 2 + 4


def test_old_rows_take_their_bundle_with_them() -> None:
    """A waiting bundle with a stale row is dropped whole; others stay."""
    buffer = filled(grouped([1, 1, 1], [7, 7, 0], offsets=[0, 1, 1]))
    assert buffer.drop_waiting(1) == 2
    assert buffer.waiting_steps == 1


def test_the_ring_holds_the_rewards_of_the_team() -> None:
    """A row's reward is its own, those of its mates, and the group's."""
    rewards = {"reward": np.array([1, 2, 10, 20, 5], np.float32), "group_reward": np.full(5, 100, np.float32)}
    buffer = filled(grouped([2, 2, 1], [7, 7, 0], **rewards))
    buffer.take(5)
    plan = buffer.plan()
    assert buffer.ring.storage["reward"][plan.step_rows].tolist() == [111, 122, 111, 122, 105]


def test_the_value_after_an_end_counts_unless_the_group_ended() -> None:
    """A dead agent bootstraps while its group continues; a terminated group does not; without a group its own end counts."""
    ends = [TERMINATED, CUT, TERMINATED, TERMINATED, TRUNCATED]
    stands = np.array([GroupEnd.CONTINUES, GroupEnd.CONTINUES, GroupEnd.TERMINATED, 1, 1], np.uint8)
    buffer = filled(grouped([1, 2, 1, 1, 1], [7, 7, 8, 0, 0], ends=ends, group_end=stands))
    buffer.take(6)
    plan = buffer.plan()
    assert plan.bootstraps.index_select(0, plan.steps).tolist() == [1, 1, 1, 0, 0, 1]
    assert plan.terminated.tolist() == [1, 0, 0, 1, 1, 0]
    assert plan.members is not None
    assert plan.members.present.sum(1).tolist() == [2, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1]
