"""Groups of agents in chunks and updates: which mates act at the same time, and the rewards that they share.

A *bundle* is all segments of one episode of one group in a chunk; an agent without a group is a bundle of its own. The
numbers in ``group_step`` align its rows: a row is in effect from its step to that of its agent's next row, so that
agents may ask for actions at different times. Without that column, rows are aligned by their steps in their episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import GroupEnd, SegmentEnd
from rollcast.trajectories import Chunk

Index = NDArray[np.int64]

MAX_CELLS = 2**24
"""Most segments times steps of a bundle; a larger one is dropped, because its mates could not be found in memory."""


class GroupPlace(NamedTuple):
    """The position of a segment in its group.

    Attributes:
        bundle: Number of the bundle, equal for mates that are trained in one update; never 0.
        episode: Number of the agent's episode, unique in its chunk.
        end: State of the group at the segment's end; for an agent without a group, that of its episode.
        is_cut: Whether its agent's episode continues after it.
        steps: ``[L]``, number of each row in the group's episode, ascending.
    """

    bundle: int
    episode: int
    end: GroupEnd
    is_cut: bool
    steps: Index


def bundles_of(chunk: Chunk) -> Index:
    """Returns for each segment of a chunk the index of the first segment of its bundle, ``[S]``."""
    found = np.arange(chunk.segments, dtype=np.int64)
    groups = chunk.columns.get("group")
    if groups is None:
        return found
    episodes = chunk.columns.get("group_episode", np.zeros_like(groups))
    firsts: dict[tuple[int, int], int] = {}
    for index, key in enumerate(zip(groups.tolist(), episodes.tolist(), strict=True)):
        if key[0]:
            found[index] = firsts.setdefault(key, index)
    return found


def whole(chosen: Index, bundles: Index) -> Index:
    """Returns the chosen segments of bundles of which all segments are chosen, bundle after bundle.

    Args:
        chosen: Indices of segments.
        bundles: Result of `bundles_of`, ``[S]``.
    """
    missing = np.ones(len(bundles), np.bool_)
    missing[chosen] = False
    broken = np.zeros(len(bundles), np.bool_)
    broken[bundles[missing]] = True
    kept: Index = chosen[~broken[bundles[chosen]]]
    return kept[np.argsort(bundles[kept], kind="stable")]


def places_of(chunk: Chunk, bundles: Index, starts: Index, lengths: Index) -> list[GroupPlace]:
    """Returns the position of each segment of a chunk; its bundle is the index of the first segment plus 1.

    Args:
        chunk: The chunk.
        bundles: Result of `bundles_of`, ``[S]``.
        starts: ``[S]``, first row of each segment.
        lengths: ``[S]``, rows of each segment.
    """
    columns = chunk.columns
    steps = columns.get("group_step")
    ends, groups, group_ends = columns["end"], columns.get("group"), columns.get("group_end")
    places = []
    episodes: dict[tuple[int, int], int] = {}
    for index, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        is_cut = ends[index] == SegmentEnd.CUT
        if groups is None or not groups[index]:
            over = GroupEnd.TERMINATED if ends[index] == SegmentEnd.TERMINATED else GroupEnd.TRUNCATED
            end = GroupEnd.CONTINUES if is_cut else over
        else:
            end = GroupEnd.CONTINUES if group_ends is None else GroupEnd(int(group_ends[index]))
        if steps is None or groups is None or not groups[index]:
            first = int(columns["first_step"][index])
            own: Index = np.arange(first, first + length, dtype=np.int64)
        else:
            own = steps[start : start + length].astype(np.int64)
        played = (int(columns["agent"][index]), int(columns["episode"][index])) if "episode" in columns else (index, 0)
        episode = episodes.setdefault(played, index)
        places.append(GroupPlace(int(bundles[index]) + 1, episode, end, bool(is_cut), own))
    return places


class _Timeline(NamedTuple):
    """The rows of k segments of a bundle on T consecutive moments: the steps at which any of them acts.

    Attributes:
        moments: Moment of each row, by segment, ``[L]`` each.
        until: ``[k]``, the moment from which the last row of each segment is no longer in effect.
        total: Number of moments, T.
    """

    moments: list[Index]
    until: Index
    total: int


def _timeline(places: Sequence[GroupPlace]) -> _Timeline:
    steps, moments = np.unique(np.concatenate([place.steps for place in places]), return_inverse=True)
    parts = np.split(moments.astype(np.int64), np.cumsum([len(place.steps) for place in places])[:-1])
    until = np.array(
        [len(steps) if place.is_cut else part[-1] + 1 for place, part in zip(places, parts, strict=True)], np.int64
    )
    following: dict[int, int] = {}
    for index in sorted(range(len(places)), key=lambda one: -int(parts[one][0])):
        until[index] = min(until[index], following.get(places[index].episode, len(steps)))
        until[index] = max(until[index], parts[index][-1] + 1)  # segments of one episode must not overlap
        following[places[index].episode] = int(parts[index][0])
    return _Timeline(parts, until, len(steps))


def is_too_large(places: Sequence[GroupPlace]) -> bool:
    """Returns whether a bundle exceeds `MAX_CELLS`."""
    return len(places) * (sum(len(place.steps) for place in places) + 1) > MAX_CELLS


def team_rewards(rewards: Sequence[NDArray[np.float32]], places: Sequence[GroupPlace]) -> list[NDArray[np.float64]]:
    """Returns for each row the sum of the own rewards of all mates while the row is in effect, by segment.

    Args:
        rewards: Each agent's own rewards, by segment, ``[L]`` each.
        places: Positions of the segments of one bundle.
    """
    if len(places) == 1:
        return [rewards[0].astype(np.float64)]
    line = _timeline(places)
    total = np.zeros(line.total)
    for moments, own in zip(line.moments, rewards, strict=True):
        total[moments] += own  # the moments of a segment differ
    return [np.add.reduceat(total[:until], moments) for moments, until in zip(line.moments, line.until, strict=True)]


class Members(NamedTuple):
    """The agents that are present at each of R rows (see `learner.training.buffers.buffer.UpdateRows`), at most M.

    Attributes:
        rows: ``[R, M]`` int64, indices among the R rows, the row's own agent first; the row itself where none is.
        present: ``[R, M]``, 1 where there is an agent, otherwise 0.
    """

    rows: Index
    present: NDArray[np.float32]


def members_of(places: Sequence[GroupPlace]) -> Members:
    """Finds the members present at each step, and after the last step of each segment.

    After a cut these are the agent itself and the mates at that moment. After an early end the agent itself is absent,
    unless no mate is known. After the end of the group they are the agents whose last observations are not terminal.

    Args:
        places: Positions of the segments of an update, one bundle after the other.
    """
    lengths = np.array([len(place.steps) + 1 for place in places], np.int64)
    firsts = np.cumsum(lengths) - lengths
    own = np.arange(lengths.sum(), dtype=np.int64)
    found: list[tuple[int, Index, bool]] = []
    begin, most = 0, 1
    while begin < len(places):
        end = begin + 1
        while end < len(places) and places[end].bundle == places[begin].bundle:
            end += 1
        if end - begin > 1:
            for segment, (mates, is_absent) in enumerate(_mates(places[begin:end], firsts[begin:end]), begin):
                found.append((segment, mates, is_absent))
                most = max(most, 1 + mates.shape[1])
        begin = end
    rows = np.repeat(own[:, None], most, axis=1)
    present = np.zeros((len(own), most), np.float32)
    present[:, 0] = 1.0
    for segment, mates, is_absent in found:
        block = slice(firsts[segment], firsts[segment] + lengths[segment])
        width = 1 + mates.shape[1]
        there = mates >= 0
        rows[block, 1:width] = np.where(there, mates, own[block, None])
        present[block, 1:width] = there
        if is_absent:
            present[block.stop - 1, 0] = 0.0
    return Members(rows, present)


def _mates(places: Sequence[GroupPlace], firsts: Index) -> list[tuple[Index, bool]]:
    """Returns the rows of the mates of each segment of a bundle, and whether its agent is absent after its last step.

    The rows of a segment of L steps are ``[L + 1, mates]``; -1 stands for no mate, and comes after all mates.
    """
    line = _timeline(places)
    at = np.full((len(places), line.total + 1), -1, np.int64)
    for index, (place, moments) in enumerate(zip(places, line.moments, strict=True)):
        until = int(line.until[index])
        rows = firsts[index] + np.arange(len(moments))
        at[index, moments[0] : until] = np.repeat(rows, np.diff(moments, append=until))
        if place.is_cut and until == line.total:
            at[index, until] = firsts[index] + len(moments)
    over = np.array([place.end == GroupEnd.TRUNCATED for place in places])
    finals = np.where(over, firsts + np.array([len(moments) for moments in line.moments]), -1)
    episodes = np.array([place.episode for place in places])
    found = []
    for place, moments, until in zip(places, line.moments, line.until.tolist(), strict=True):
        others = episodes != place.episode
        mates = at[others][:, np.append(moments, until)]
        if place.end == GroupEnd.TRUNCATED:
            mates[:, -1] = finals[others]
        elif place.end == GroupEnd.TERMINATED:
            mates[:, -1] = -1
        mates = np.take_along_axis(mates, np.argsort(mates < 0, axis=0, kind="stable"), axis=0)
        most = int((mates >= 0).sum(0).max(initial=0))
        is_early = not place.is_cut and place.end == GroupEnd.CONTINUES
        found.append((mates[:most].T, is_early and bool((mates[:most, -1] >= 0).any())))
    return found
