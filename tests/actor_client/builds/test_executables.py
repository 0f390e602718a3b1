"""Tests how a build is found."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from actor_client.builds import executables
from actor_client.builds.executables import find_build
from actor_client.exits import ActorError, ExitCode
from actor_client.unity.players.launch import UNITY


def program(path: Path) -> Path:
    """Makes a file that may be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("asked", ["Build", "Build.x86_64", "Build.exe", "Build.app", "Build.x86"])
def test_a_suffix_may_be_left_out_or_be_another_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The suffix may be missing or that of another system; relative paths start at the working directory."""
    monkeypatch.chdir(tmp_path)
    made = program(tmp_path / "Build.x86_64")
    (tmp_path / "Build").mkdir()  # a folder of the same name is not taken for it
    assert find_build(asked, UNITY, "linux") == made
    assert find_build(str(tmp_path / asked), UNITY, "linux") == made


def test_linux_takes_what_is_named_if_nothing_else_is_there(tmp_path: Path) -> None:
    """Linux accepts 32-bit programs, or a script without a suffix."""
    script = program(tmp_path / "player")
    assert find_build(str(script), UNITY, "linux") == script
    old = program(tmp_path / "player.x86")
    assert find_build(str(script), UNITY, "linux") == old


def test_macos_looks_into_the_application(tmp_path: Path) -> None:
    """On macOS the program inside the application is started."""
    other = program(tmp_path / "Game.app" / "Contents" / "MacOS" / "Other")
    assert find_build(str(tmp_path / "Game"), UNITY, "darwin") == other
    same = program(tmp_path / "Game.app" / "Contents" / "MacOS" / "Game")
    assert find_build(str(tmp_path / "Game.app"), UNITY, "darwin") == same


def test_windows_looks_into_the_folder(tmp_path: Path) -> None:
    """On Windows Unity's crash handler next to the build is not started."""
    program(tmp_path / "Game" / "UnityCrashHandler64.exe")
    inside = program(tmp_path / "Game" / "Zoo.exe")
    assert find_build(str(tmp_path / "Game"), UNITY, "win32") == inside
    beside = program(tmp_path / "Game.exe")
    assert find_build(str(tmp_path / "Game"), UNITY, "win32") == beside


def test_what_cannot_be_started_is_one_line_and_a_code(tmp_path: Path) -> None:
    """A build that cannot be started is one line with the next step, and an exit code."""
    plain = tmp_path / "Plain.x86_64"
    plain.write_text("")
    program(tmp_path / "folder" / "Inside.x86_64")
    (tmp_path / "Zoo" / "ProjectSettings").mkdir(parents=True)
    program(tmp_path / "Mac.app" / "Contents" / "MacOS" / "Mac")
    for asked, words in {
        str(tmp_path / "Nope"): f"Nope: there is no such build in {tmp_path}",
        str(tmp_path / "folder"): f"is a folder; name the player in it, as in {tmp_path / 'folder' / 'Inside.x86_64'}",
        str(plain): "chmod +x",
        "run.yaml": "--env run.yaml is a run file, which goes first, without a flag: rollcast unity run.yaml --env BUILD",
        str(tmp_path / "missing.yml"): "is a run file",
        str(tmp_path / "Zoo"): "is a Unity project",
        str(tmp_path / "Mac.app"): "is a build for macOS",
        "x" * 5000: "cannot be looked up",
    }.items():
        with pytest.raises(ActorError) as failure:
            find_build(asked, UNITY, "linux")
        assert failure.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT
        assert words in failure.value.message
        assert "\n" not in failure.value.message


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"MZ\x90\x00", "is a program for Windows"),
        (b"\xcf\xfa\xed\xfe", "is a program for macOS"),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\x00", "is a program for another processor"),
        (b"PK\x03\x04", "is neither a program nor a script"),
        (b"", "is neither a program nor a script"),
    ],
)
def test_a_build_for_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, words: str
) -> None:
    """A file that Linux cannot start is named as what it is, unless Linux was told how to start its format."""
    monkeypatch.setattr(executables, "_FORMATS", tmp_path / "formats")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    made = program(tmp_path / "Build.x86_64")
    made.write_bytes(head)
    with pytest.raises(ActorError, match=words):
        find_build(str(made), UNITY, "linux")
    assert find_build(str(program(tmp_path / "Game.exe")), UNITY, "win32")
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "status").write_text("enabled")
    (tmp_path / "formats" / "qemu").write_text(f"enabled\nmagic {head[:2].hex()}\n")
    assert find_build(str(made), UNITY, "linux") == made


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_a_build_for_this_machine_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """Programs for this processor, and those of processors without a name here, are accepted."""
    number = {"x86_64": 62, "aarch64": 183, "riscv64": 243}[machine]
    monkeypatch.setattr(platform, "machine", lambda: machine)
    made = program(tmp_path / "Build.x86_64")
    made.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + number.to_bytes(2, "little"))
    assert find_build(str(made), UNITY, "linux") == made
