"""Tests the limit of the episodes that count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import structlog
from rollcast.enums import AssignmentRole, ColumnRole, Purpose, SegmentEnd
from rollcast.trajectories import Chunk

from learner.service.ingest.intake import MAX_HELD_EPISODES, leave_out_excess
from learner.service.ingest.session import Account
from tests.learner.service.ingest.parts import NAME, make_chunk
from tests.learner.service.ingest.test_intake import Line


def with_episodes(chunk: Chunk, count: int, **values: Any) -> Chunk:
    """Adds records of episodes with the returns 0, 1, 2 and so on; ``values`` are further columns."""
    columns: dict[str, Any] = {
        "episode/env": np.zeros(count, np.uint32),
        "episode/agent": np.zeros(count, np.uint64),
        "episode/episode": np.arange(count, dtype=np.uint64),
        "episode/return": np.arange(count, dtype=np.float32),
        "episode/length": np.ones(count, np.uint32),
        "episode/end": np.full(count, SegmentEnd.TERMINATED, np.uint8),
    } | {f"episode/{name}": np.full(count, value, np.uint8) for name, value in values.items()}
    chunk.columns.update(columns)
    chunk.roles.update(dict.fromkeys(columns, ColumnRole.EPISODE))
    chunk.episodes = count
    return chunk


def only_episodes(count: int, sequence: int = 1) -> Chunk:
    """Returns a chunk of records alone."""
    return with_episodes(Chunk(sequence=sequence, generation=1), count)


def test_returns_without_rows_do_not_count() -> None:
    """A chunk of 100 invented returns is acked and counted as refused; none of them reaches the trainers."""
    line = Line()
    with structlog.testing.capture_logs() as logs:
        assert line.take(only_episodes(100)) is None
    (item,) = line.parts.trainers.take()
    assert (item.chunk.episodes, [name for name in item.chunk.columns if name.startswith("episode")]) == (0, [])
    (entry,) = [each for each in logs if each["event"] == "episodes_refused"]
    assert (entry["reason"], entry["episodes"], entry["behavior"]) == ("without_rows", 100, NAME)


def test_the_agents_that_a_session_claims_do_not_help() -> None:
    """A session with a million agents counts no more than two episodes a row."""
    line = Line()
    chunk = with_episodes(make_chunk(5, agents=2**20), 100)
    assert line.take(chunk) is None
    assert line.take(only_episodes(100, sequence=2)) is None
    first, second = line.parts.trainers.take()
    assert first.chunk.columns["episode/return"].tolist() == list(range(10))
    assert (first.chunk.rows, second.chunk.episodes) == (5, 0)
    books = line.parts.ledger.books(NAME)
    assert (books.received, books.queued) == (5, 5)


def test_episodes_of_one_step_count() -> None:
    """An actor whose episodes have one step each reports as many as it has rows, again and again."""
    line = Line()
    line.session.accounts[0].granted_steps = 10_000
    for sequence in range(1, 20):
        line.take(with_episodes(make_chunk(8, sequence=sequence), 8))
    assert sum(item.chunk.episodes for item in line.parts.trainers.take()) == 19 * 8


def test_an_episode_that_began_before_a_restart_counts() -> None:
    """The tail of a long episode is enough in a new session, whatever its length."""
    line = Line()
    chunk = with_episodes(make_chunk(1), 1)
    chunk.columns["episode/length"] = np.full(1, 100_000, np.uint32)
    line.take(chunk)
    (item,) = line.parts.trainers.take()
    assert item.chunk.episodes == 1


@pytest.mark.parametrize("values", [{"purpose": Purpose.EVALUATE}, {"role": AssignmentRole.OPPONENT}])
def test_other_records_are_judged_by_their_assignments(values: dict[str, int]) -> None:
    """Records of evaluations and opponents are no training episodes and use up no rows."""
    account = Account(NAME, 0, 8, 1000, agents=1)
    chunk = with_episodes(Chunk(), 100, **values)
    assert leave_out_excess(account, chunk, is_grouped=False) == 0
    assert (chunk.episodes, account.episodes) == (100, 0)


def test_agents_in_groups_may_end_before_their_rows_arrive() -> None:
    """Records of dead mates count at once, up to a limit; their rows wait for the mates."""
    account = Account(NAME, 0, 8, 1000, agents=100)
    assert leave_out_excess(account, only_episodes(100), is_grouped=True) == 100 - MAX_HELD_EPISODES
    assert leave_out_excess(account, only_episodes(1), is_grouped=True) == 1


def test_the_limit_survives_a_checkpoint() -> None:
    """The counts of rows and episodes are saved."""
    account = Account(NAME, 0, 8, 1000, agents=1)
    leave_out_excess(account, with_episodes(make_chunk(6), 4), is_grouped=False)
    restored = Account.from_state(account.state_dict())
    assert (restored.episode_rows, restored.episodes) == (6, 4)
