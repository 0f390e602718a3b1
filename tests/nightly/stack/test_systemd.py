"""Tests the units of systemd with its own verification."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from actor_client.cli import build_parser as actor_parser
from learner.cli.cli import build_parser as learner_parser
from learner.shared.runfolder.names import CONFIGURATION
from learner.shared.runfolder.runfolder import open_run_folder
from tests.deploy.promql import DEPLOY

UNITS = sorted((DEPLOY / "systemd").iterdir())
BACKUP = DEPLOY / "systemd" / "rollcast-backup@.service"
PROGRAMS = "/opt/rollcast/bin"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Copies the units, for programs of this environment and with an instance of each template."""
    for path in UNITS:
        text = (
            path.read_text().replace(PROGRAMS, str(Path(sys.executable).parent)).replace("/usr/bin/docker", "/bin/true")
        )
        (tmp_path / path.name).write_text(text)
        (tmp_path / path.name.replace("@.", "@walker.")).write_text(text)
    return tmp_path


def test_systemd_accepts_them(installed: Path) -> None:
    """Verification has nothing to say about any unit: keys, sections and programs are known."""
    units = [path for path in installed.iterdir() if "@." not in path.name]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "rollcast" in line] == []
    assert len(units) == len(UNITS)


def test_what_a_head_enables_it_copies_first() -> None:
    """Each template or unit is copied to systemd's folder by a command in the head of one of the files."""
    heads = [line for path in UNITS for line in path.read_text().splitlines() if line.startswith("#")]
    copied = {
        Path(word).name for line in heads if "sudo cp " in line for word in line.split() if "systemd/rollcast" in word
    }
    assert copied == {path.name for path in UNITS}


def test_the_unit_copies_a_run(tmp_path: Path) -> None:
    """The command of the unit, in its folder, makes a copy of the learner's run."""
    lines = dict(re.findall(r"^(ExecStart|WorkingDirectory)=(.+)$", BACKUP.read_text(), re.MULTILINE))
    home = lines["WorkingDirectory"]
    with open_run_folder(tmp_path / "results", "walker") as run:
        run.next_generation()
        (run.path / CONFIGURATION).write_text("behaviors: {}")
    words = shlex.split(lines["ExecStart"].replace(PROGRAMS, str(Path(sys.executable).parent)).replace("%i", "walker"))
    done = subprocess.run(
        [word.replace(home, str(tmp_path)) for word in words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    copy = Path(done.stdout.strip())
    assert copy.parent == tmp_path / "backups"
    assert (copy / "generation").is_file()


def test_their_commands_exist() -> None:
    """Each program of Rollcast in a unit has the command and the flags that the unit gives it."""
    text = "\n".join(path.read_text() for path in UNITS)
    commands = re.findall(rf"^ExecStart={PROGRAMS}/rollcast (act )?(.+)$", text, re.MULTILINE)
    assert len(commands) == 3
    for act, words in commands:
        parser = actor_parser("rollcast act") if act else learner_parser("rollcast")
        assert parser.parse_args(shlex.split(words)).command
