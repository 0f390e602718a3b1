"""Tests the journal of a run's events."""

import json
from pathlib import Path

from structlog.testing import capture_logs

from learner.shared.observe.journal import JOURNAL_FILE, Journal
from tests.learner.shared.observe.disk import no_larger_than


def events(folder: Path) -> list[dict[str, object]]:
    """Returns what the file holds."""
    return [json.loads(line) for line in (folder / JOURNAL_FILE).read_text().splitlines()]


def test_events_of_all_starts_follow_each_other(tmp_path: Path) -> None:
    """Events of all starts follow each other, each with time, name, start and fields."""
    for generation in (1, 2):
        journal = Journal(tmp_path, generation)
        journal.note("started", seed=3, odd=float("nan"), text="line\nbreak ✓ \ud800")
        journal.close()
    journal.note("late")
    journal.close()
    found = events(tmp_path)
    assert [(event["event"], event["generation"]) for event in found] == [("started", 1), ("started", 2), ("late", 2)]
    assert (found[0]["seed"], found[0]["odd"], found[0]["text"]) == (3, None, "line\nbreak ✓ ?")
    assert all(str(event["time"]).endswith("+00:00") for event in found)


def test_a_full_disk_is_told_of_once(tmp_path: Path) -> None:
    """On a full disk events are lost with one warning, and the others are whole."""
    journal = Journal(tmp_path, 1)
    journal.note("first")
    with capture_logs() as logs, no_larger_than((tmp_path / JOURNAL_FILE).stat().st_size + 10):
        journal.note("second")
        journal.note("third")
    journal.note("fourth")
    journal.close()
    assert [line["event"] for line in logs] == ["event_not_kept"]
    assert [event["event"] for event in events(tmp_path)] == ["first", "fourth"]
