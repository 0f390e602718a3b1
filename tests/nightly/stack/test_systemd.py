"""Tests the units of systemd with its own verification."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from actor_client.cli import build_parser as actor_parser
from learner.cli import build_parser as learner_parser
from tests.deploy.promql import DEPLOY

UNITS = sorted((DEPLOY / "systemd").iterdir())
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


def test_their_commands_exist() -> None:
    """Each program of Rollcast in a unit has the command and the flags that the unit gives it."""
    text = "\n".join(path.read_text() for path in UNITS)
    commands = re.findall(rf"^ExecStart={PROGRAMS}/rollcast (act )?(.+)$", text, re.MULTILINE)
    assert len(commands) == 3
    for act, words in commands:
        parser = actor_parser("rollcast act") if act else learner_parser("rollcast")
        assert parser.parse_args(shlex.split(words)).command
