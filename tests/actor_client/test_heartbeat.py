"""Tests the heartbeat of the stepping thread."""

import os
import time
from pathlib import Path

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import INTERVAL_SECONDS, Heartbeat, check


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Returns monotonic seconds."""
        return self.now


def test_beats_reach_the_file_now_and_then(tmp_path: Path) -> None:
    """The file is created immediately, and later beats touch it at most once per interval."""
    clock, path = Clock(), tmp_path / "heartbeat"
    heartbeat = Heartbeat(path, clock)
    assert path.exists()
    heartbeat.beat()
    os.utime(path, (0, 0))
    clock.now += INTERVAL_SECONDS / 2
    heartbeat.beat()
    assert path.stat().st_mtime == 0
    clock.now += INTERVAL_SECONDS / 2
    heartbeat.beat()
    assert path.stat().st_mtime > 0
    clock.now += 30
    assert heartbeat.age_seconds == 30


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    """If the file cannot be written, the actor ends with an error that names the flag and the file."""
    with pytest.raises(ActorError, match=r"--heartbeat-file .*missing") as caught:
        Heartbeat(tmp_path / "missing" / "heartbeat")
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    "content", ["behaviors: {}\n", "sha256:abc", "\x00\x01", "12" + " " * 300 + "data", "12\n", "nan "]
)
def test_another_file_is_not_replaced(tmp_path: Path, content: str) -> None:
    """A file that holds no beat is kept; one of an earlier actor, or an empty one, is taken over."""
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(ActorError, match="exists and holds no beat"):
        Heartbeat(path)
    assert path.read_text() == content
    for earlier in ("", "12.5\n"):
        path.write_text(earlier)
        assert Heartbeat(path, Clock()).age_seconds == 0
        assert path.read_text() == "100.0\n"


def test_a_folder_that_disappears_stops_nobody(tmp_path: Path) -> None:
    """A folder that disappears later does not end the actor, but its health check fails."""
    clock, path = Clock(), tmp_path / "folder" / "heartbeat"
    path.parent.mkdir()
    heartbeat = Heartbeat(path, clock)
    path.unlink()
    path.parent.rmdir()
    clock.now += INTERVAL_SECONDS
    heartbeat.beat()
    with pytest.raises(ActorError) as caught:
        check(path, 10)
    assert caught.value.exit_code is ExitCode.STUCK


def test_a_young_beat_is_well_and_an_old_one_is_not(tmp_path: Path) -> None:
    """A beat older than the allowed age is an error that says how old it is."""
    clock, path = Clock(), tmp_path / "heartbeat"
    Heartbeat(path, clock)
    clock.now += 59
    assert check(path, 60, clock) == "last beat 59.0 s ago"
    clock.now += 2
    with pytest.raises(ActorError, match=r"61\.0 s ago; at most 60 s") as caught:
        check(path, 60, clock)
    assert caught.value.exit_code is ExitCode.STUCK
    Heartbeat(path)
    assert "last beat" in check(path, 60), "both sides have the same clock"


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_changes_nothing(tmp_path: Path, hours: int) -> None:
    """A change of the system clock does not affect the check."""
    clock, path = Clock(), tmp_path / "heartbeat"
    Heartbeat(path, clock)
    os.utime(path, (time.time() + 3600 * hours,) * 2)
    assert "last beat" in check(path, 60, clock)
    clock.now += 61
    with pytest.raises(ActorError):
        check(path, 60, clock)


def test_a_file_without_a_time_is_judged_by_its_date(tmp_path: Path) -> None:
    """An empty file is judged by its modification time."""
    path = tmp_path / "heartbeat"
    path.touch()
    assert "last beat" in check(path, 60)
    os.utime(path, (time.time() - 100,) * 2)
    with pytest.raises(ActorError, match=r"10\d\.\d s ago"):
        check(path, 60)


def test_a_file_of_an_earlier_start_of_the_machine_is_no_life(tmp_path: Path) -> None:
    """A file from before a reboot is too old, although its monotonic time is in the future."""
    clock, path = Clock(), tmp_path / "heartbeat"
    Heartbeat(path, clock)
    clock.now = 1.0
    with pytest.raises(ActorError, match="older than the last start of this machine") as caught:
        check(path, 60, clock)
    assert caught.value.exit_code is ExitCode.STUCK


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_a_file_that_holds_no_time_is_no_life(tmp_path: Path, text: str) -> None:
    """A file without a valid time fails the check."""
    path = tmp_path / "heartbeat"
    path.write_text(text)
    with pytest.raises(ActorError) as caught:
        check(path, 60)
    assert caught.value.exit_code is ExitCode.STUCK


def test_a_pipe_or_a_device_is_no_heartbeat_file(tmp_path: Path) -> None:
    """A pipe or device as heartbeat file is refused at the start and by the check."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, Path(os.devnull), Path("/dev/zero"), tmp_path):
            with pytest.raises(ActorError) as caught:
                check(path, 60)
            assert caught.value.exit_code is ExitCode.STUCK
            with pytest.raises(ActorError, match="--heartbeat-file") as caught:
                Heartbeat(path)
            assert caught.value.exit_code is ExitCode.USAGE
    finally:
        os.close(reader)
    with pytest.raises(ActorError, match="--heartbeat-file"):
        Heartbeat(pipe)
