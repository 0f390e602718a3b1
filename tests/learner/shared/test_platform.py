"""Tests the portable replacements of system calls."""

from __future__ import annotations

import ctypes
import enum
import os
import signal
from pathlib import Path

import pytest
from rollcast.signals import stop_signal_numbers

from learner.shared import platform
from learner.shared.files import WriteFailed, open_regular, write_file


def test_processors_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without affinity, all processors of the machine count."""
    assert platform.processors() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
    assert platform.processors() == 3
    monkeypatch.delattr(os, "process_cpu_count")
    assert platform.processors() == os.cpu_count()


def test_memory_is_unknown_where_no_call_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a system call for it, memory is unknown."""
    known = platform.memory_bytes()
    assert known is not None
    assert known > 2**28
    monkeypatch.delattr(os, "sysconf")
    assert platform.memory_bytes() is None


def test_free_memory_on_windows_is_what_its_kernel_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory on Windows is read from a structure as in sysinfoapi.h: 64 bytes, at byte 16."""

    class Kernel:
        def GlobalMemoryStatusEx(self, status: object) -> int:
            data = memoryview((ctypes.c_uint8 * 64).from_address(ctypes.addressof(status._obj))).cast("B")  # type: ignore[attr-defined]
            assert int.from_bytes(data[0:4], "little") == 64
            data[16:24] = (5 * 2**30).to_bytes(8, "little")
            return 1

    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(ctypes, "windll", type("Libraries", (), {"kernel32": Kernel()}), raising=False)
    assert platform.memory_bytes() == 5 * 2**30


def test_signals_are_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signals are those that the system has, with Ctrl+Break on Windows."""
    assert [each.name for each in stop_signal_numbers()] == ["SIGINT", "SIGTERM", "SIGHUP"]
    assert [each.name for each in platform.operator_signal_numbers()] == ["SIGUSR1", "SIGUSR2"]
    names = {"SIGTERM": 15, "SIGINT": 2, "SIGBREAK": 21}
    monkeypatch.setattr(signal, "Signals", enum.IntEnum("Signals", names))
    assert [each.name for each in stop_signal_numbers()] == ["SIGINT", "SIGTERM", "SIGBREAK"]
    assert platform.operator_signal_numbers() == ()


class _HeldOpenError(PermissionError):
    """Windows' error for a file that another process has open."""

    winerror = 32


@pytest.mark.parametrize(
    ("error", "tries", "is_replaced"),
    [(_HeldOpenError, 3, True), (_HeldOpenError, 10**9, False), (PermissionError, 1, False)],
    ids=["closed", "stays open", "another refusal"],
)
def test_a_file_that_a_reader_has_open_is_replaced_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], tries: int, is_replaced: bool
) -> None:
    """Replacing a file that is open elsewhere on Windows waits until it is closed, and fails after a second."""
    path, replace, tried = tmp_path / "status.json", Path.replace, 0

    def refused(self: Path, target: Path) -> Path:
        nonlocal tried
        tried += 1
        if is_replaced and tried == tries:
            return replace(self, target)
        raise error(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refused)
    monkeypatch.setattr(platform, "_REPLACE_SECONDS", 0.0)
    if is_replaced:
        write_file(path, b"new")
        assert path.read_bytes() == b"new"
    else:
        with pytest.raises(WriteFailed, match="Permission denied"):
            write_file(path, b"new")
        assert list(tmp_path.iterdir()) == []
    assert tried == min(tries, platform._REPLACE_TRIES + 1)


@pytest.mark.parametrize("has_flag", [True, False])
def test_links_are_refused_with_and_without_the_flag(
    tmp_path: Path, has_flag: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links are refused with and without O_NOFOLLOW."""
    if not has_flag:
        monkeypatch.setattr(platform, "_NO_FOLLOW", 0)
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "file", follow_links=False) as file:
        assert file.read() == b"text"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link", follow_links=False)


def test_the_start_of_the_system_has_an_id_where_linux_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id stays the same; other systems have none."""
    assert len(platform.boot_id()) == 36
    assert platform.boot_id() == platform.boot_id()
    monkeypatch.setattr(platform, "_BOOT_ID", str(tmp_path / "missing"))
    assert platform.boot_id() == ""
