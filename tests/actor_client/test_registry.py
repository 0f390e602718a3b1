"""Tests the commands that installed packages add to `rollcast act`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from actor_client import registry
from actor_client.cli import main
from actor_client.exits import ExitCode
from tests.learner.installed import install

COMMAND = """
    from actor_client.command_line import Command
    def add_flags(parser):
        parser.add_argument("--rooms")
    def run(flags):
        print("rooms", flags["rooms"])
        return 0
    COMMAND = Command("a help that nobody asked for", "Steps rooms.", add_flags, "{module}:run")
"""


def declare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, text: str, *names: str, value: str = "COMMAND"
) -> None:
    """Installs a package that declares commands."""
    points = {registry.GROUP: dict.fromkeys(names or ("rooms",), f"{package}:{value}")}
    monkeypatch.syspath_prepend(str(install(tmp_path, package, text, points)))
    monkeypatch.delitem(sys.modules, package, raising=False)


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the one line of an error."""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_package_adds_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its command has its flags, its help and the exit codes of all; a wrong flag gets a suggestion."""
    declare(tmp_path, monkeypatch, "their_rooms", COMMAND.format(module="their_rooms"))
    assert main(["rooms", "--rooms", "3"]) == ExitCode.OK
    assert capsys.readouterr().out == "rooms 3\n"
    with pytest.raises(SystemExit) as ended:
        main(["rooms", "--help"], "rollcast act")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: rollcast act rooms [-h] [--rooms ROOMS]\n\nSteps rooms.\n")
    assert "exit codes:" in out
    assert main(["rooms", "--room", "3"]) == ExitCode.USAGE
    assert "did you mean --rooms?; see rollcast-actor rooms --help" in error_of(capsys)


def test_a_list_of_commands_imports_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help, completion and other commands show or ignore the name, and never import its module."""
    declare(tmp_path, monkeypatch, "their_rooms", "raise RuntimeError('imported')")
    with pytest.raises(SystemExit):
        main(["--help"], "rollcast act")
    assert "    rooms               of the package their_rooms 1.0\n" in capsys.readouterr().out
    for words in (["--print-completion", "bash"], ["gym", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
    assert "rooms" in capsys.readouterr().out
    assert main(["--version"]) == ExitCode.OK
    assert "their_rooms" not in sys.modules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('no\\nGPU')", "RuntimeError: no GPU"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import no_such_simulator", "ModuleNotFoundError: No module named 'no_such_simulator'"),
        ("def broken(:", "SyntaxError: "),
        ("other = 1", "AttributeError: module 'their_rooms' has no attribute 'COMMAND'"),
        ("COMMAND = 7", "TypeError: it is int, and not actor_client.command_line.Command"),
        (COMMAND.replace("--rooms", "-h"), "ArgumentError: "),
        (COMMAND.replace("parser.add_argument", "raise ValueError"), "ValueError: --rooms"),
        (COMMAND.replace("{module}:run", "no_such_simulator:run"), "No module named 'no_such_simulator'"),
        (COMMAND.replace("{module}:run", "ends_here:run"), "SystemExit: 3"),
        (COMMAND.replace(":run", ":no_run"), "AttributeError: module 'their_rooms' has no attribute 'no_run'"),
        ("class Silent(Exception):\n    def __str__(self): raise OSError\nraise Silent", "Silent"),
    ],
)
def test_a_package_that_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    """The line names the package, its version and the reason; there is no traceback, and other commands work."""
    declare(tmp_path, monkeypatch, "their_rooms", text.replace("{module}", "their_rooms"))
    (tmp_path / "ends_here.py").write_text("raise SystemExit(3)")
    assert main(["rooms", "--rooms", "3"]) == ExitCode.UNKNOWN_ENVIRONMENT
    line = error_of(capsys)
    assert line.startswith(
        "error: the command rooms of the package their_rooms 1.0 (their_rooms:COMMAND) cannot be used: "
    )
    assert said in line
    assert main(["gym", "--env", "NoSuch-v0"]) == ExitCode.UNKNOWN_ENVIRONMENT


@pytest.mark.parametrize(("name", "others"), [("rooms", ("their_rooms", "our_rooms")), ("gym", ("their_rooms",))])
def test_a_name_of_two_packages_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    others: tuple[str, ...],
) -> None:
    """The line names both packages; no package replaces a command of Rollcast silently."""
    for package in others:
        declare(tmp_path / package, monkeypatch, package, COMMAND.format(module=package), name)
    assert main([name, "--rooms", "3"]) == ExitCode.USAGE
    line = error_of(capsys)
    assert f"several packages declare the command {name} (entry points rollcast.actors): " in line
    assert all(f"{package} 1.0" in line for package in others)
    assert ("rollcast 0" in line) is (name == "gym")
    assert not {*others} & {*sys.modules}
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"the package {others[0]} 1.0" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        main(["boards", "--help"])


def test_no_package_takes_the_name_of_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`healthcheck` stays Rollcast's, and names that are no words are not offered."""
    declare(tmp_path, monkeypatch, "their_rooms", "raise RuntimeError", "healthcheck", "--help", "two words", "Ünder")
    assert main(["healthcheck"]) == ExitCode.USAGE
    assert "needs an actor's heartbeat file" in error_of(capsys)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "their_rooms" not in capsys.readouterr().out


def test_a_package_that_is_installed_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python imports the first, as from a folder in PYTHONPATH beside the installed one."""
    for folder in ("first", "second"):
        declare(tmp_path / folder, monkeypatch, "their_rooms", COMMAND.format(module="their_rooms"))
    assert main(["rooms", "--rooms", "2"]) == ExitCode.OK
    assert capsys.readouterr().out == "rooms 2\n"


@pytest.mark.parametrize("file", ["entry_points.txt", "METADATA"])
def test_a_damaged_installation_stops_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Of a package whose files cannot be read, only its own commands are missing."""
    declare(tmp_path, monkeypatch, "their_rooms", COMMAND.format(module="their_rooms"))
    (info,) = tmp_path.glob("*.dist-info")
    (info / file).write_bytes(b"[rollcast.actors]\nrooms\xff = :\n[[")
    assert main(["gym", "--env", "NoSuch-v0"]) == ExitCode.UNKNOWN_ENVIRONMENT
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0


def test_an_installation_that_is_older_than_its_code_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Rollcast's own entry points, one line says what to do."""
    monkeypatch.setattr(registry, "distributions", list)
    assert main(["gym", "--env", "CartPole-v1"]) == ExitCode.USAGE
    assert "install it again" in error_of(capsys)
