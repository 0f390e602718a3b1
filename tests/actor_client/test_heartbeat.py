"""The sign of life of the stepping thread, and its check."""

import os
import time
from pathlib import Path

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import INTERVAL_SECONDS, Heartbeat, check


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Returns monotonic seconds."""
        return self.now


def test_beats_reach_the_file_now_and_then(tmp_path: Path) -> None:
    """The file is made at once; later beats touch it at most every interval."""
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


def test_the_age_is_known_without_a_file() -> None:
    """`/healthz` needs no file."""
    clock = Clock()
    heartbeat = Heartbeat(clock=clock)
    clock.now += 30
    assert heartbeat.age_seconds == 30
    heartbeat.beat()
    assert heartbeat.age_seconds == 0


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    """The error names the flag and the file."""
    with pytest.raises(ActorError, match=r"--heartbeat-file .*missing") as caught:
        Heartbeat(tmp_path / "missing" / "heartbeat")
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_folder_that_disappears_stops_nobody(tmp_path: Path) -> None:
    """A disk that fails later is no reason to end; the check sees that the file is missing."""
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
    """The age that is allowed is the caller's to say; the error says how old the last beat is."""
    clock, path = Clock(), tmp_path / "heartbeat"
    Heartbeat(path, clock)
    clock.now += 59
    assert check(path, 60, clock) == "alive 59.0 s ago"
    clock.now += 2
    with pytest.raises(ActorError, match=r"61\.0 s ago; at most 60 s") as caught:
        check(path, 60, clock)
    assert caught.value.exit_code is ExitCode.STUCK
    for number in range(100):
        assert "alive" in check(_beaten(tmp_path / f"now{number}"), 60), "both sides have the same clock"


def _beaten(path: Path) -> Path:
    Heartbeat(path)
    return path


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_set_changes_nothing(tmp_path: Path, hours: int) -> None:
    """The file's date is of no account: an actor that hangs is found though its file comes from the future."""
    clock, path = Clock(), tmp_path / "heartbeat"
    Heartbeat(path, clock)
    os.utime(path, (time.time() + 3600 * hours,) * 2)
    assert "alive" in check(path, 60, clock)
    clock.now += 61
    with pytest.raises(ActorError):
        check(path, 60, clock)


def test_a_file_without_a_time_is_judged_by_its_date(tmp_path: Path) -> None:
    """For a moment it is empty, and a disk that is full leaves it so."""
    path = tmp_path / "heartbeat"
    path.touch()
    assert "alive" in check(path, 60)
    os.utime(path, (time.time() - 100,) * 2)
    with pytest.raises(ActorError, match=r"10\d\.\d s ago"):
        check(path, 60)


def test_a_file_of_an_earlier_start_of_the_machine_is_no_life(tmp_path: Path) -> None:
    """The monotonic clock begins anew with the machine: a time to come is one that was long ago."""
    clock, path = Clock(), tmp_path / "heartbeat"
    Heartbeat(path, clock)
    clock.now = 1.0
    with pytest.raises(ActorError, match="before this machine was started") as caught:
        check(path, 60, clock)
    assert caught.value.exit_code is ExitCode.STUCK


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_a_file_that_holds_no_time_is_no_life(tmp_path: Path, text: str) -> None:
    """What compares with nothing must not pass for young."""
    path = tmp_path / "heartbeat"
    path.write_text(text)
    with pytest.raises(ActorError) as caught:
        check(path, 60)
    assert caught.value.exit_code is ExitCode.STUCK


def test_a_pipe_or_a_device_is_no_heartbeat_file(tmp_path: Path) -> None:
    """Nobody waits at either end of what is no regular file: the check and the start end with an error."""
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
