"""Tests that the queue of lock-step releases a complete round in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rollcast.enums import ActionSource, ColumnRole, GroupEnd, SegmentEnd
from rollcast.trajectories import Chunk

from learner.link.to_front import Pace, Settled, ToFront
from learner.link.to_trainers import Experience
from learner.training.lockstep.round_queue import RoundQueue, in_order, joined
from learner.training.trainers.outcome_report import OutcomeReport
from tests.learner.service.ingest.parts import Parts, make_chunk


class Rig:
    """A queue and its settled steps."""

    def __init__(self) -> None:
        parts = Parts()
        behavior = parts.declared(parts.open().session).declared
        self.said: list[ToFront] = []
        self.queue = RoundQueue(behavior, OutcomeReport(behavior.index, self.said.append))

    def settled(self) -> Settled:
        """Returns the outcomes for the service."""
        self.queue.outcomes.flush(Pace())
        message = self.said[-1]
        assert isinstance(message, Settled)
        return message


def test_nothing_comes_out_before_a_release() -> None:
    """A release returns all chunks once, sorted by actor, and frees their bytes."""
    rig = Rig()
    queue = rig.queue
    queue.put(queued(make_chunk(3), actor=1, session="b", sequence=1))
    queue.put(queued(make_chunk(2), actor=0, session="a", sequence=2))
    assert queue.get() == []
    assert rig.settled().through == 0

    released = queue.release({"a", "b"})
    assert queue.has_released
    assert rig.settled().through == 2
    assert [(item.actor_index, item.chunk.rows) for item in released] == [(0, 2), (1, 3)]
    assert queue.get() == list(released)
    assert not queue.has_released
    assert queue.get() == []
    assert rig.settled().dropped == {}


def test_the_end_of_a_round_is_known() -> None:
    """The end of a session's round is kept until the round is released."""
    queue = Rig().queue
    queue.put(queued(make_chunk(3), session="a"))
    assert queue.ended == {}
    for session in ("a", "gone"):
        queue.put(queued(make_chunk(1, sequence=2, lockstep_round=7), session=session))
    assert queue.ended == {"a": 7, "gone": 7}
    queue.release({"a"})
    assert queue.ended == {"a": 7}


def test_steps_of_strangers_are_dropped() -> None:
    """Steps of actors outside the round are dropped."""
    rig = Rig()
    rig.queue.put(queued(make_chunk(3), session="stranger"))
    rig.queue.put(queued(make_chunk(2), session="player"))
    assert [item.chunk.rows for item in rig.queue.release({"player"})] == [2]
    assert [item.chunk.rows for item in rig.queue.get()] == [2]
    assert rig.settled().dropped == {"lockstep": 3}


def test_the_end_of_training_empties_it() -> None:
    """After the end of training released, waiting and later chunks are dropped."""
    rig = Rig()
    rig.queue.put(queued(make_chunk(3), session="a", sequence=1))
    rig.queue.release({"a"})
    rig.queue.put(queued(make_chunk(2, sequence=2), session="a", sequence=2))
    rig.queue.close()
    assert not rig.queue.has_released
    assert (rig.settled().dropped, rig.settled().through) == ({"not_training": 5}, 2)
    rig.queue.put(queued(make_chunk(4, sequence=3), session="a", sequence=3))
    assert (rig.settled().dropped, rig.settled().through) == ({"not_training": 4}, 3)
    assert rig.queue.get() == []


STRIDE = 2
STEP = ("obs/state", "reward", "action_mask", "group_reward", "group_step", "action_source")
SEGMENT = ("length", "end", "env", "agent", "episode", "first_step", "group", "group_episode", "group_end")
OPTIONAL = frozenset({"action_mask", "group_reward", "action_source", "group_end", "final_action_mask"})


@dataclass(frozen=True)
class Piece:
    """A segment."""

    env: int
    agent: int
    episode: int
    first_step: int
    length: int
    version: int

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Returns its sort key."""
        return self.env, self.agent, self.episode, self.first_step

    def value(self, step: int) -> float:
        """Returns a value that identifies each step."""
        return self.env * 1e6 + self.agent * 1e4 + self.episode * 1e2 + self.first_step + step


def chunk_of(pieces: Sequence[Piece], *, sequence: int, without: frozenset[str] = frozenset(), team: int = 0) -> Chunk:
    """Returns a chunk of segments; optional columns have the values of absent ones."""
    rows = sum(piece.length for piece in pieces)
    values = np.array([piece.value(step) for piece in pieces for step in range(piece.length)], np.float32)
    versions = np.array([piece.version for piece in pieces for _ in range(piece.length)], np.int64)
    base = int(versions.min(initial=10**6)) if rows else 0
    records = [piece.value(step) for piece in pieces for step in range(0, piece.length, STRIDE)]
    columns: dict[str, NDArray[Any]] = {
        "obs/state": np.stack((values, -values), axis=1),
        "reward": values,
        "action_mask": np.ones((rows, 3), np.uint8),
        "group_reward": np.zeros(rows, np.float32),
        "group_step": np.array([piece.first_step + n for piece in pieces for n in range(piece.length)], np.int32),
        "action_source": np.full(rows, ActionSource.POLICY, np.uint8),
        "length": np.array([piece.length for piece in pieces], np.uint32),
        "end": np.full(len(pieces), SegmentEnd.CUT, np.uint8),
        "env": np.array([piece.env for piece in pieces], np.uint32),
        "agent": np.array([piece.agent for piece in pieces], np.uint64),
        "episode": np.array([piece.episode for piece in pieces], np.uint64),
        "first_step": np.array([piece.first_step for piece in pieces], np.uint32),
        "group": np.array([piece.env + 1 for piece in pieces], np.uint64),
        "group_episode": np.array([piece.episode for piece in pieces], np.uint64),
        "group_end": np.full(len(pieces), GroupEnd.CONTINUES, np.uint8),
        "final_obs/state": np.array([[piece.value(piece.length)] * 2 for piece in pieces], np.float32).reshape(-1, 2),
        "final_action_mask": np.ones((len(pieces), 3), np.uint8),
        "memory": np.array(records, np.float32).reshape(-1, 1),
    }
    roles = dict.fromkeys(STEP, ColumnRole.STEP) | dict.fromkeys(SEGMENT, ColumnRole.SEGMENT)
    roles |= dict.fromkeys(("final_obs/state", "final_action_mask"), ColumnRole.FINAL) | {"memory": ColumnRole.MEMORY}
    if rows and (versions != base).any():
        columns["version_offset"] = (versions - base).astype(np.uint32)
        roles["version_offset"] = ColumnRole.STEP
    kept = {name: column for name, column in columns.items() if name not in without}
    return Chunk(
        sequence=sequence,
        generation=1,
        team=team,
        base_version=base,
        segments=len(pieces),
        rows=rows,
        agents=2,
        columns=kept,
        roles={name: roles[name] for name in kept},
    )


def queued(chunk: Chunk, *, actor: int = 0, session: str = "s", sequence: int = 1) -> Experience:
    """Returns a chunk as the service sends it."""
    return Experience(0, sequence, chunk, session, actor, encoded_bytes=100, received_at=float(chunk.sequence))


def contents(chunk: Chunk) -> dict[str, list[Any]]:
    """Returns everything that trainers read from a chunk."""
    found: dict[str, list[Any]] = {name: column.tolist() for name, column in chunk.columns.items()}
    return found | {"rows": [chunk.rows], "segments": [chunk.segments], "base_version": [chunk.base_version]}


PIECES = st.lists(
    st.builds(
        Piece,
        env=st.integers(0, 2),
        agent=st.integers(0, 1),
        episode=st.integers(1, 3),
        first_step=st.integers(0, 60).map(lambda step: step * 5),
        length=st.integers(1, 5),
        version=st.integers(3, 4),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda piece: piece.key,
)


@given(pieces=PIECES, data=st.data())
@settings(max_examples=60, deadline=None)
def test_cuts_between_chunks_leave_no_trace(pieces: list[Piece], data: st.DataObject) -> None:
    """The division of segments into chunks does not change the result."""
    shuffled = data.draw(st.permutations(pieces))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(pieces) - 1)), max_size=4)))
    parts = [shuffled[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    chunks = [
        chunk_of(part, sequence=number, without=data.draw(st.sets(st.sampled_from(sorted(OPTIONAL))).map(frozenset)))
        for number, part in enumerate(parts, 1)
        if part
    ]
    found = joined(chunks, STRIDE)

    expected = contents(chunk_of(sorted(pieces, key=lambda piece: piece.key), sequence=1))
    present = set().union(*(chunk.columns for chunk in chunks))
    left_out = OPTIONAL - present
    assert contents(found) == {name: value for name, value in expected.items() if name not in left_out}
    assert set(found.roles) == set(found.columns)


def test_actors_and_teams_stay_apart() -> None:
    """Each actor and team has one chunk, in the order of numbers."""
    piece = Piece(0, 0, 1, 0, 3, 3)
    items = [
        queued(chunk_of([piece], sequence=4), actor=1, session="b"),
        queued(chunk_of([piece], sequence=2, team=1), session="a"),
        queued(chunk_of([piece], sequence=3), session="a"),
    ]
    ordered = in_order(items, STRIDE)
    assert [(item.actor_index, item.chunk.team) for item in ordered] == [(0, 0), (0, 1), (1, 0)]
    assert [item.encoded_bytes for item in ordered] == [100, 100, 100]


def test_records_stay_in_the_order_in_which_they_were_sent() -> None:
    """Episodes and statistics keep their order and their names."""

    def records(sequence: int, returns: list[float], keys: tuple[str, ...], opponents: tuple[str, ...]) -> Chunk:
        count = len(returns)
        return Chunk(
            sequence=sequence,
            episodes=count,
            stat_keys=keys,
            opponents=opponents,
            columns={
                "episode/return": np.array(returns, np.float32),
                "episode/opponent": np.array([*range(count - 1), -1], np.int32),
                "stat/key": np.arange(len(keys), dtype=np.uint32),
                "stat/value": np.arange(len(keys), dtype=np.float32),
                **({"info/speed": np.array(returns, np.float32)} if sequence == 2 else {}),
            },
            roles={
                "episode/return": ColumnRole.EPISODE,
                "episode/opponent": ColumnRole.EPISODE,
                "stat/key": ColumnRole.STAT,
                "stat/value": ColumnRole.STAT,
                **({"info/speed": ColumnRole.EPISODE} if sequence == 2 else {}),
            },
        )

    first = records(1, [5.0, 1.0], ("x", "y"), ("old",))
    second = records(2, [3.0, 2.0], ("y", "z"), ("older",))
    (item,) = in_order([queued(second), queued(first)])
    chunk = item.chunk

    assert chunk.columns["episode/return"].tolist() == [5.0, 1.0, 3.0, 2.0]
    places = chunk.columns["episode/opponent"].tolist()
    assert [chunk.opponents[place] if place >= 0 else "" for place in places] == ["old", "", "older", ""]
    assert [chunk.stat_keys[key] for key in chunk.columns["stat/key"]] == ["x", "y", "y", "z"]
    assert np.isnan(chunk.columns["info/speed"][:2]).all()
    assert (chunk.episodes, chunk.rows, chunk.segments) == (4, 0, 0)


@pytest.mark.parametrize("other", [np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float64)])
def test_a_column_that_changed_its_form_is_left_out(other: NDArray[Any]) -> None:
    """A column of another form in a later chunk is left out."""
    pieces = [Piece(0, 0, 1, 0, 2, 3), Piece(0, 0, 1, 5, 2, 3)]
    chunks = [chunk_of([piece], sequence=number) for number, piece in enumerate(pieces, 1)]
    for chunk, column in zip(chunks, (np.zeros((2, 3), np.float32), other), strict=True):
        chunk.columns["extra/own"] = column
        chunk.roles["extra/own"] = ColumnRole.STEP
    assert "extra/own" not in joined(chunks, STRIDE).columns
