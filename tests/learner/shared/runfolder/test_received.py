"""Tests the record of received steps: it survives kills, torn writes and damage, and its size is fixed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from learner.service.ingest.behaviors import MAX_BEHAVIORS
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.runfolder import received
from learner.shared.runfolder.received import RECEIVED, Received, ReceivedCount, ReceivedSteps, session_key_of

NAME_AT, TOTALS_AT = 96, (96 + 520, 96 + 568)
"""Offsets of the first behavior: its name, and the two copies of its numbers."""
SESSION_AT = 96 + 256 * 616
COUNTS_AT = (SESSION_AT + 40, SESSION_AT + 80)
KEY = session_key_of("a session")


def record_of(folder: Path, max_sessions: int = 4) -> ReceivedSteps:
    """Returns the record of a folder."""
    return ReceivedSteps(folder, max_sessions)


def begun(folder: Path, max_sessions: int = 4, **steps: int) -> ReceivedSteps:
    """Returns a new record with these totals."""
    record = record_of(folder, max_sessions)
    record.begin(tuple(steps), steps, {})
    return record


def note(record: ReceivedSteps, total: int, session: str = "a session", index: int = 0, name: str = "Walker") -> None:
    """Notes a chunk after which a session has as many received steps as the run, in as many chunks."""
    record.note(session, index, name, total=total, steps=total, through=total)


def damage(folder: Path, *places: int) -> None:
    """Inverts bytes of the file."""
    path = folder / RECEIVED
    content = bytearray(path.read_bytes())
    for place in places:
        content[place] ^= 0xFF
    path.write_bytes(content)


def found_in(folder: Path) -> Received:
    """Returns what the next start finds."""
    found = record_of(folder).read()
    assert found is not None
    return found


def test_what_is_noted_is_read_by_the_next_start(tmp_path: Path) -> None:
    """Each note replaces the numbers of its behavior and its session; unknown behaviors are added."""
    record = begun(tmp_path, Walker=5)
    for steps in (6, 7, 8):
        note(record, steps)
    note(record, 3, "another", 1, "Läufer")
    sessions = {
        KEY: {0: ReceivedCount("Walker", 8, 8, total=8)},
        session_key_of("another"): {1: ReceivedCount("Läufer", 3, 3, total=3)},
    }
    expected = Received({"Walker": 8, "Läufer": 3}, sessions, is_complete=True)
    assert found_in(tmp_path) == expected
    record.close()
    note(record, 9)  # the service has stopped: nothing happens
    assert found_in(tmp_path) == expected
    assert received.MAX_BEHAVIORS == MAX_BEHAVIORS


def test_sessions_are_kept_over_several_starts(tmp_path: Path) -> None:
    """A later start keeps the counts of sessions that may return, whatever place their behavior has by then."""
    record = begun(tmp_path, Walker=0, Runner=0)
    note(record, 4)
    note(record, 5, index=1, name="Runner")
    for _ in range(2):
        found = found_in(tmp_path)
        record = record_of(tmp_path)
        record.begin(("Runner",), found.totals, found.sessions)
    note(record, 6, "later", 0, "Runner")
    found = found_in(tmp_path)
    assert found.totals == {"Walker": 4, "Runner": 6}
    assert found.sessions[KEY] == {
        0: ReceivedCount("Walker", 4, 4, total=4),
        1: ReceivedCount("Runner", 5, 5, total=5),
    }
    assert found.sessions[session_key_of("later")] == {0: ReceivedCount("Runner", 6, 6, total=6)}


def test_a_folder_without_a_record_has_none(tmp_path: Path) -> None:
    """A missing file is no record, and a damaged one is none either, which is logged."""
    assert record_of(tmp_path).read() is None
    begun(tmp_path, Walker=5).close()
    damage(tmp_path, 3)
    with structlog.testing.capture_logs() as logs:
        assert record_of(tmp_path).read() is None
    assert [entry["event"] for entry in logs] == ["received_steps_unreadable"]
    (tmp_path / RECEIVED).write_bytes(b"rollcast")
    with structlog.testing.capture_logs():
        assert record_of(tmp_path).read() is None


@pytest.mark.slow
def test_a_killed_process_leaves_its_last_note(tmp_path: Path) -> None:
    """SIGKILL right after a note loses nothing."""
    script = (
        "import os, signal, sys; from pathlib import Path; from learner.shared.runfolder.received import ReceivedSteps\n"
        "record = ReceivedSteps(Path(sys.argv[1]), 4); record.begin((), {}, {})\n"
        "for n in range(1, 1001): record.note('a session', 0, 'Walker', total=n, steps=n, through=n)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    sessions = {KEY: {0: ReceivedCount("Walker", 1000, 1000, total=1000)}}
    assert found_in(tmp_path) == Received({"Walker": 1000}, sessions, is_complete=True)


def test_a_kill_between_the_two_writes_of_a_chunk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only the behavior has a chunk and its session does not, the next start takes it from there; no other session does."""
    record = begun(tmp_path, Walker=0)
    note(record, 5)
    note(record, 6, "another")
    whole = received._write
    written: list[bytes] = []

    def half(target: Any, slot: Any, numbers: bytes) -> None:
        if not written:
            whole(target, slot, numbers)
        written.append(numbers)

    monkeypatch.setattr(received, "_write", half)
    record.note("a session", 0, "Walker", total=16, steps=15, through=9)
    assert len(written) == 2
    found = found_in(tmp_path)
    assert found.totals == {"Walker": 16}
    assert found.sessions[KEY] == {0: ReceivedCount("Walker", 15, 9, total=16)}
    assert found.sessions[session_key_of("another")] == {0: ReceivedCount("Walker", 6, 6, total=6)}


@pytest.mark.parametrize("copies", [TOTALS_AT, COUNTS_AT])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("byte", [0, 7, 15])
def test_a_torn_write_leaves_the_other_copy(tmp_path: Path, copies: tuple[int, int], which: int, byte: int) -> None:
    """If one copy is damaged anywhere, the other one counts."""
    record = begun(tmp_path, Walker=5)
    note(record, 6)
    note(record, 7)
    record.close()
    damage(tmp_path, copies[which] + byte)
    found = found_in(tmp_path)
    assert found.totals["Walker"] in {6, 7}
    assert found.sessions[KEY][0].steps in {6, 7}
    assert found.is_complete


def test_a_behavior_without_valid_numbers_makes_the_record_incomplete(tmp_path: Path) -> None:
    """If both copies of a behavior are damaged, or its name, actors are believed again; other behaviors are kept."""
    for places in (TOTALS_AT, (NAME_AT + 2,)):
        begun(tmp_path, Walker=5, Runner=6).close()
        damage(tmp_path, *places)
        assert found_in(tmp_path) == Received({"Runner": 6}, is_complete=False)


def test_another_start_of_the_system_makes_the_record_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure the file may be older than the last ack; without an id of the start this is unknown."""
    begun(tmp_path, Walker=5).close()
    monkeypatch.setattr(received, "boot_id", lambda: "another")
    assert found_in(tmp_path) == Received({"Walker": 5}, is_complete=False)
    monkeypatch.setattr(received, "boot_id", str)
    begun(tmp_path, Walker=5).close()
    assert found_in(tmp_path) == Received({"Walker": 5}, is_complete=False)


def test_a_copy_of_the_file_is_incomplete(tmp_path: Path) -> None:
    """A file that a backup brought back is older than what actors were told, who are then believed."""
    begun(tmp_path, Walker=5).close()
    path = tmp_path / RECEIVED
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert found_in(tmp_path) == Received({"Walker": 5}, is_complete=False)


def test_the_file_has_a_fixed_size(tmp_path: Path) -> None:
    """Ended sessions give their places to new ones, the oldest first; a session without a place is warned of once."""
    record = begun(tmp_path, max_sessions=4, Walker=0)
    size, places = (tmp_path / RECEIVED).stat().st_size, 4 * 4 + 64
    for number in range(3 * places):
        note(record, number + 1, f"session {number}")
        if number < 2 * places:
            record.end(f"session {number}", {0: number, 1: 0}, has_left=False)
    with structlog.testing.capture_logs() as logs:
        for number in (500, 501):
            note(record, number, f"session {number}")
    assert [entry["event"] for entry in logs] == ["received_steps_full"]
    found = found_in(tmp_path)
    assert (tmp_path / RECEIVED).stat().st_size == size
    assert found.totals == {"Walker": 501}
    assert set(found.sessions) == {session_key_of(f"session {number}") for number in range(2 * places, 3 * places)}
    assert found.is_complete


def test_the_longest_names_are_kept(tmp_path: Path) -> None:
    """Notes of as many behaviors as a run may have, with the longest names, are kept; one more makes the record incomplete."""
    record = begun(tmp_path)
    names = [f"{place:03}" + "\U0001f600" * 125 for place in range(MAX_BEHAVIORS)]
    for place, name in enumerate(names):
        note(record, place + 1, "s", place, name)
    found = found_in(tmp_path)
    assert found.totals == {name: place + 1 for place, name in enumerate(names)}
    assert found.is_complete
    note(record, 1, "s", MAX_BEHAVIORS, "one more")
    assert not found_in(tmp_path).is_complete


def test_a_full_disk_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The space is taken at the start, which a full disk ends with a message."""

    def refuse(path: Path, data: bytes, **_options: object) -> None:
        raise WriteFailed(path, OSError(28, "No space left on device"))

    monkeypatch.setattr(received, "write_file", refuse)
    with pytest.raises(UserError, match="No space left") as caught:
        record_of(tmp_path).begin((), {}, {})
    assert caught.value.exit_code == ExitCode.NOT_SAVED
