"""Tests that fish completes commands, flags and files as the script says, by asking fish."""

import subprocess
import sys
from pathlib import Path

import pytest
from rollcast.console import COMMANDS

pytestmark = [pytest.mark.nightly, pytest.mark.smoke]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Returns the script of `rollcast` for fish, in a folder with some files."""
    path = tmp_path / "rollcast.fish"
    line = [sys.executable, "-m", "rollcast", "--print-completion", "fish"]
    path.write_text(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "run.yaml").touch()
    (tmp_path / "files" / "folder").mkdir()
    return path


def completed(script: Path, line: str) -> list[str]:
    """Returns what fish offers at the end of a command line."""
    program = f"source {script}; complete -C {line!r}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program], capture_output=True, text=True, check=True, cwd=script.parent / "files"
    )
    assert done.stderr == ""
    return [offered.partition("\t")[0] for offered in done.stdout.splitlines()]


def test_commands_and_those_below_them_are_completed(script: Path) -> None:
    """The first word is a command, the second one of its own commands; a value is none."""
    assert set(COMMANDS) <= set(completed(script, "rollcast "))
    assert completed(script, "rollcast che") == ["check-config"]
    assert completed(script, "rollcast act pet") == ["pettingzoo"]
    assert set(completed(script, "rollcast certs ")) >= {"init", "client", "renew", "token"}
    assert "gym" not in completed(script, "rollcast --version act")[1:]


def test_flags_are_those_of_the_command(script: Path) -> None:
    """Flags are offered below their own command, also after other flags."""
    assert completed(script, "rollcast serve --torch") == ["--torch-device"]
    assert completed(script, "rollcast serve --run-id act --torch") == ["--torch-device"]
    assert completed(script, "rollcast act gym --torch") == []
    assert completed(script, "rollcast act gym --frame-sk") == ["--frame-skip"]


def test_values_are_files_folders_or_choices(script: Path) -> None:
    """Files are offered where a value is a file, folders where it is a folder, and words where there are some."""
    assert "run.yaml" in completed(script, "rollcast serve ")
    assert "run.yaml" in completed(script, "rollcast act gym --token-file ")
    assert completed(script, "rollcast serve --results-dir ") == ["folder/"]
    assert completed(script, "rollcast serve --run-id ") == []
    assert set(completed(script, "rollcast compare --x ")) == {"steps", "time"}
