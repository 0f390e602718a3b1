"""Run states that are readable files and make no sense: one line and the exit code of a bad checkpoint."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from learner.checkpoints.store import SavedRunState
from learner.common.exits import ExitCode, UserError
from learner.curriculum.lessons import Lessons
from tests.learner.curriculum.curricula import curriculum, parameters
from tests.learner.ingest.parts import NAME
from tests.learner.starts import Start, opened, saved, saved_after_one_update


def three_lessons() -> Lessons:
    """A curriculum of three lessons."""
    return Lessons(parameters(mass=curriculum(1, 2, 3, behavior=NAME, threshold=5)), seed=0)


def broken_states(state: SavedRunState) -> dict[str, SavedRunState]:
    """Returns states that are readable files, and make no sense."""
    row = state.behaviors_table["behaviors"][0]
    books = state.ledger[NAME]
    return {
        "books": replace(state, ledger={NAME: {**books, "received": books["received"] + 1}}),
        "counter": replace(state, ledger={NAME: {**books, "received": "many"}}),
        "sessions": replace(state, sessions={"sessions": [{}], "places": {}, "ended": {}}),
        "spec": replace(state, behaviors_table={"behaviors": [{**row, "spec": b"\xff\xff"}]}),
        "empty spec": replace(state, behaviors_table={"behaviors": [{**row, "spec": b""}]}),
        "table": replace(state, behaviors_table={"behaviors": 3}),
        "no table": replace(state, behaviors_table={"behaviors": []}),
        "twice": replace(state, behaviors_table={"behaviors": [row, row]}),
        "clocks": replace(state, extra={"milestones": {NAME: {"wall_seconds": "long"}}}),
        "news": replace(state, extra={"news": {NAME: {"nonsense": 1}}}),
        "curves": replace(state, extra={"history": {NAME: {"interval": 1, "columns": {"t": [2.0, 1.0]}}}}),
        "extra": replace(state, extra={"milestones": 3}),
    }


CASES = (
    "books",
    "counter",
    "sessions",
    "spec",
    "empty spec",
    "table",
    "no table",
    "twice",
    "clocks",
    "news",
    "curves",
    "extra",
)


@pytest.mark.parametrize("case", CASES)
def test_a_state_that_makes_no_sense_is_refused(tmp_path: Path, case: str) -> None:
    """Whatever is in it, the user hears of the file and of what to do, and never gets a traceback."""
    with opened(tmp_path) as folder:
        first = Start(folder, 1)
        trainer = first.join()
        first.parts.ledger.enqueue(NAME, 7)
        first.keeper.save_run_state({NAME: trainer})
    state = broken_states(saved(tmp_path))[case]
    with opened(tmp_path, resume=True) as folder, pytest.raises(UserError, match="does not fit together") as caught:
        Start(folder, 2).keeper.restore(state)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
    assert "run_state.pt" in caught.value.message


def numbers_of(part: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields where the numbers of a state are."""
    if type(part) in (int, float):
        yield path
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from numbers_of(value, (*path, key))


ANY_NUMBER = frozenset({"log_prob_error_max", "mean_lag", "mean_return", "smoothed"})


def refused(start: Start, state: SavedRunState) -> str:
    """Returns how a start refuses a state; empty if it goes on from it."""
    try:
        start.keeper.restore(state)
    except UserError as error:
        return error.message
    return ""


def test_numbers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """Negative, not a number, or larger than any message holds: whatever it counts, the start ends with one line."""
    with opened(tmp_path) as folder:
        first = Start(folder, 1, lessons=three_lessons())
        trainer = first.join()
        first.train(trainer, 1)
        first.parts.declared(first.parts.open("lost").session)
        first.parts.now += 1e6
        assert first.parts.sessions.expire()
        first.parts.declared(first.parts.open("here").session)
        first.keeper.save_run_state({NAME: trainer})
    state = saved(tmp_path)
    assert state.sessions["ended"]["records"]
    parts = {"ledger": state.ledger, "sessions": state.sessions, "extra": state.extra}
    told: dict[tuple[object, ...], str] = {}
    with opened(tmp_path, resume=True) as folder:
        for path in numbers_of(parts):
            if path[:2] in {("extra", "history"), ("extra", "seed")} or ANY_NUMBER & {*path}:
                continue
            for value in (-1, math.nan, 2**101):
                other = copy.deepcopy(parts)
                part: Any = other
                for key in path[:-1]:
                    part = part[key]
                part[path[-1]] = value
                broken = SavedRunState(
                    1, other["ledger"], other["sessions"], state.behaviors_table, state.trainers, other["extra"]
                )
                told[(*path, value)] = refused(Start(folder, 2, lessons=three_lessons()), broken)
    assert len(told) > 50
    assert [case for case, message in told.items() if "does not fit together" not in message] == []
    assert [message for message in told.values() if "\n" in message] == []


def test_what_was_trained_needs_its_trainer_and_its_declaration(tmp_path: Path) -> None:
    """Without its state it would begin with new weights, under the books of the old ones."""
    state = saved_after_one_update(tmp_path)
    without: dict[str, SavedRunState] = {
        "trainer": replace(state, trainers={}),
        "declaration": replace(
            state,
            behaviors_table={"behaviors": []},
            sessions={"sessions": [], "places": {}, "ended": {"taken_steps": {}, "records": {}}},
        ),
    }
    for part, broken in without.items():
        with (
            opened(tmp_path, resume=True) as folder,
            pytest.raises(UserError, match=f"its {part} is missing") as caught,
        ):
            Start(folder, 2).keeper.restore(broken)
        assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
