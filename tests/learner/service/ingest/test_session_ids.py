"""Tests ids of sessions: only the run makes valid ones, and logs have short names."""

from __future__ import annotations

import pytest

from learner.service.ingest.session_ids import SessionIds, short_id

KEY = bytes(range(32))


def test_a_run_recognizes_its_ids() -> None:
    """An id is valid for its run, key and principal alone, and no two are the same."""
    ids = SessionIds(KEY, "run")
    made = ids.make("walker")
    assert SessionIds(KEY, "run").is_own(made, "walker")
    assert made != ids.make("walker")
    for other, principal in (
        (SessionIds(KEY, "another"), "walker"),
        (SessionIds(bytes(32), "run"), "walker"),
        (ids, "runner"),
        (ids, ""),
        (SessionIds(KEY, "runw"), "alker"),
    ):
        assert not other.is_own(made, principal)


@pytest.mark.parametrize("invented", ["", "x", "0" * 32, "0" * 64, "é" * 64, "\ud800" * 64, "0" * 128, " " * 64])
def test_invented_ids_are_not_its_own(invented: str) -> None:
    """Texts of any length and kind are no ids of the run, and asking for their age is no error."""
    ids = SessionIds(KEY, "run", clock=lambda: 0.0)
    assert not ids.is_own(invented, "")
    assert ids.age_seconds(invented) == 0.0


def test_a_changed_digit_makes_another_id() -> None:
    """Every digit of an id matters."""
    ids = SessionIds(KEY, "run")
    made = ids.make("")
    for place, digit in enumerate(made):
        changed = made[:place] + ("0" if digit != "0" else "1") + made[place + 1 :]
        assert not ids.is_own(changed, "")


def test_a_short_name_is_stable_and_is_no_part_of_the_id() -> None:
    """Short names distinguish sessions, also untrusted ones, and do not begin like the id."""
    assert short_id("s-42") == short_id("s-42") != short_id("s-43")
    assert len(short_id("\ud800" * 1000)) == 12
    made = SessionIds(KEY, "run").make("")
    assert short_id(made) not in made
