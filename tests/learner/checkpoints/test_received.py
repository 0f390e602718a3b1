"""Tests the record of received steps: it survives kills, torn writes, damage and growth."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from learner.checkpoints import received
from learner.checkpoints.received import RECEIVED, Received, ReceivedSteps
from learner.common.exits import ExitCode, UserError
from learner.common.files import WriteFailed

SLOT_AT, FIRST_COPY, SECOND_COPY = 64, 520, 536
"""Offsets of the first slot, and of the two copies in a slot."""


def begun(folder: Path, **steps: int) -> ReceivedSteps:
    """Returns a new record with these numbers."""
    record = ReceivedSteps(folder)
    record.begin(steps)
    return record


def damage(folder: Path, *places: int) -> None:
    """Inverts bytes of the file."""
    path = folder / RECEIVED
    content = bytearray(path.read_bytes())
    for place in places:
        content[place] ^= 0xFF
    path.write_bytes(content)


def test_what_is_noted_is_read_by_the_next_start(tmp_path: Path) -> None:
    """Each note replaces the number of its behavior; unknown behaviors are added."""
    record = begun(tmp_path, Walker=5)
    for steps in (6, 7, 8):
        record.note("Walker", steps)
    record.note("Läufer", 3)
    assert ReceivedSteps(tmp_path).read() == Received({"Walker": 8, "Läufer": 3}, is_complete=True)
    record.close()
    record.note("Walker", 9)  # the service has stopped: nothing happens
    assert ReceivedSteps(tmp_path).read() == Received({"Walker": 8, "Läufer": 3}, is_complete=True)


def test_a_folder_without_a_record_has_none(tmp_path: Path) -> None:
    """A missing file is no record, and a damaged one is none either, which is logged."""
    assert ReceivedSteps(tmp_path).read() is None
    begun(tmp_path, Walker=5).close()
    damage(tmp_path, 3)
    with structlog.testing.capture_logs() as logs:
        assert ReceivedSteps(tmp_path).read() is None
    assert [entry["event"] for entry in logs] == ["received_steps_unreadable"]


def test_a_killed_process_leaves_its_last_note(tmp_path: Path) -> None:
    """SIGKILL right after a note loses nothing."""
    script = (
        "import os, signal, sys; from pathlib import Path; from learner.checkpoints.received import ReceivedSteps\n"
        "record = ReceivedSteps(Path(sys.argv[1])); record.begin({})\n"
        "for steps in range(1, 1001): record.note('Walker', steps)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert ReceivedSteps(tmp_path).read() == Received({"Walker": 1000}, is_complete=True)


@pytest.mark.parametrize("copy", [FIRST_COPY, SECOND_COPY])
@pytest.mark.parametrize("byte", [0, 7, 8, 11])
def test_a_torn_write_leaves_the_other_copy(tmp_path: Path, copy: int, byte: int) -> None:
    """If one copy is damaged anywhere, the other one counts."""
    record = begun(tmp_path, Walker=5)
    record.note("Walker", 6)
    record.note("Walker", 7)
    record.close()
    damage(tmp_path, SLOT_AT + copy + byte)
    found = ReceivedSteps(tmp_path).read()
    assert found is not None
    assert found.steps["Walker"] in {6, 7}
    assert found.is_complete


def test_a_slot_without_a_valid_number_makes_the_record_incomplete(tmp_path: Path) -> None:
    """If both copies of a behavior are damaged, or its name, actors are believed again."""
    for places in ((FIRST_COPY, SECOND_COPY), (2,)):
        begun(tmp_path, Walker=5, Runner=6).close()
        damage(tmp_path, *(SLOT_AT + place for place in places))
        assert ReceivedSteps(tmp_path).read() == Received({"Runner": 6}, is_complete=False)


def test_another_start_of_the_system_makes_the_record_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure the file may be older than the last ack; without an id of the start this is unknown."""
    begun(tmp_path, Walker=5).close()
    monkeypatch.setattr(received, "boot_id", lambda: "another")
    assert ReceivedSteps(tmp_path).read() == Received({"Walker": 5}, is_complete=False)
    monkeypatch.setattr(received, "boot_id", str)
    begun(tmp_path, Walker=5).close()
    assert ReceivedSteps(tmp_path).read() == Received({"Walker": 5}, is_complete=False)


def test_many_behaviors_make_the_file_grow(tmp_path: Path) -> None:
    """Notes of many behaviors, also the longest names, are kept."""
    record = begun(tmp_path)
    numbers = {f"{place:03}" + "\U0001f600" * 125: place + 1 for place in range(100)}
    for _ in range(2):
        for name, steps in numbers.items():
            record.note(name, steps)
    assert ReceivedSteps(tmp_path).read() == Received(numbers, is_complete=True)


def test_a_full_disk_makes_the_record_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file cannot grow, the run goes on, and the next start believes actors about the rest."""
    record = begun(tmp_path, **{f"b{place}": place for place in range(16)})

    def refuse(path: Path, data: bytes) -> None:
        raise WriteFailed(path, OSError(28, "No space left on device"))

    for place in range(16):  # the file has room for twice as many
        record.note(f"c{place}", place)
    monkeypatch.setattr(received, "write_file", refuse)
    with structlog.testing.capture_logs() as logs:
        for steps in (1, 2):
            record.note("one more", steps)
    assert [entry["event"] for entry in logs] == ["received_steps_not_kept"]
    record.note("b3", 99)
    found = ReceivedSteps(tmp_path).read()
    assert found is not None
    assert (found.is_complete, found.steps["b3"], "one more" in found.steps) == (False, 99, False)
    with pytest.raises(UserError, match="No space left") as caught:
        ReceivedSteps(tmp_path).begin({})
    assert caught.value.exit_code == ExitCode.RUN_FILE
