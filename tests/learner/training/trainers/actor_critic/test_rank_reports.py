"""Tests that ranks notice if they differ, and report how long they wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from structlog.testing import capture_logs

from learner.training.buffers.buffer import UpdateRows
from learner.training.trainers.actor_critic.rank_reports import COMPARED_UPDATES, RankWatch
from learner.training.trainers.rl import TrainerFailedError
from tests.learner.training.trainers.thread_ranks import WAIT_SECONDS, Meeting, ThreadRank

RANKS = 2
PARAMETERS = torch.tensor([1.0, 2.0])


def plan(steps: int, *, is_stand_in: bool = False) -> UpdateRows:
    """Returns a plan of so many steps."""
    return cast("UpdateRows", SimpleNamespace(step_count=steps, is_stand_in=is_stand_in))


def in_ranks(do: Callable[[ThreadRank, dict[str, float]], None]) -> tuple[dict[str, float], list[BaseException]]:
    """Runs a function in each rank; returns the numbers of rank 0, and the errors."""
    meeting, errors = Meeting(RANKS), list[BaseException]()
    numbers: list[dict[str, float]] = [{} for _ in range(RANKS)]

    def run(rank: int) -> None:
        try:
            do(ThreadRank(meeting, rank), numbers[rank])
        except TrainerFailedError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    return numbers[0], errors


def update(waits: Sequence[float], number: int, parameters: Sequence[torch.Tensor]) -> Callable[[Any, Any], None]:
    """Returns an update in which each rank waits for a share of it."""

    def do(reduce: ThreadRank, numbers: dict[str, float]) -> None:
        watch = RankWatch(reduce, "Behavior", numbers)
        watch.begin()
        watch._began -= 1000.0  # it began so many seconds ago
        reduce.wait_seconds += waits[reduce.rank] * 1000.0
        watch.end(plan(3 + reduce.rank, is_stand_in=reduce.rank == 1), parameters[reduce.rank], number)

    return do


def test_different_parameters_end_the_run() -> None:
    """Ranks that differ in one bit fail at the update at which they compare, and not before."""
    found = [PARAMETERS, PARAMETERS.nextafter(torch.tensor(2.0))]
    assert in_ranks(update([0.0, 0.0], COMPARED_UPDATES - 1, found))[1] == []
    _, errors = in_ranks(update([0.0, 0.0], COMPARED_UPDATES, found))
    assert [str(error).split(":")[0] for error in errors] == [
        f"the ranks of Behavior have different parameters after update {COMPARED_UPDATES}"
    ] * RANKS
    assert in_ranks(update([0.0, 0.0], COMPARED_UPDATES, [PARAMETERS] * RANKS))[1] == []


@pytest.mark.parametrize(("waits", "warns"), [([0.05, 0.1], False), ([0.05, 0.9], True)])
def test_a_long_wait_is_reported_once(waits: list[float], *, warns: bool) -> None:
    """Steps and waits are reported by rank; rank 0 warns if one waits for more than 30 % of an update."""
    with capture_logs() as logs:
        numbers, errors = in_ranks(update(waits, 1, [PARAMETERS] * RANKS))
    assert not errors
    assert (numbers["rank_steps/0"], numbers["rank_steps/1"]) == (3.0, 0.0)
    assert numbers["rank_wait_ratio/0"] < numbers["rank_wait_ratio/1"] < 1.0
    assert [line["event"] for line in logs] == (["ranks_wait"] if warns else [])
