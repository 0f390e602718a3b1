"""Tests that the entry points find Rollcast's packages or name the one that hides them."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rollcast.console import SHADOWED

from actor_client.exits import ExitCode as ActorCode
from actor_client.unity.dropin.exits import ExitCode as UnityCode
from learner.common.exits import ExitCode as LearnerCode

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
PACKAGES = {"rollcast-learner": "learner", "rollcast-actor": "actor_client", "rollcast-unity": "learner"}


def started(script: str, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command by its entry point, with a folder in front of the import path."""
    module, _, function = SCRIPTS[script].partition(":")
    program = f"import sys; from {module} import {function}; sys.exit({function}())"
    environment = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("content", ["cli = 1", "raise RuntimeError('no GPU')", "import no_such_module"])
def test_another_package_of_the_same_name_is_refused(script: str, content: str, tmp_path: Path) -> None:
    """Another package of the same name is refused in one line with its path and the next step."""
    package = tmp_path / PACKAGES[script]
    package.mkdir()
    (package / "__init__.py").write_text(content)
    done = started(script, "--version", path=tmp_path)
    assert done.returncode == SHADOWED, done.stderr
    (line,) = done.stderr.splitlines()
    found = f"the one at {package / '__init__.py'}" if content == "cli = 1" else "another one, which cannot be imported"
    assert line.startswith(f"error: the package {package.name!r} is not Rollcast's, but {found}")
    assert "uninstall it" in line


def test_a_module_in_its_place_is_refused_too(tmp_path: Path) -> None:
    """A user's learner.py is refused as well."""
    (tmp_path / "learner.py").write_text("")
    done = started("rollcast-learner", "--version", path=tmp_path)
    assert done.returncode == SHADOWED
    assert f"the one at {tmp_path / 'learner.py'}: " in done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_commands_start(script: str) -> None:
    """The entry points run the commands."""
    done = started(script, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rollcast ")


def test_the_exit_code_is_one_that_the_commands_document() -> None:
    """The exit code is listed by `--help` of each command."""
    assert {code.SHADOWED for code in (LearnerCode, ActorCode, UnityCode)} == {SHADOWED}


@pytest.mark.parametrize("script", SCRIPTS)
def test_shells_get_a_completion_script(script: str) -> None:
    """Bash accepts its completion script, and other shells have one."""
    scripts = {shell: started(script, "--print-completion", shell).stdout for shell in ("bash", "zsh", "tcsh")}
    assert all(script in text for text in scripts.values())
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n"], input=scripts["bash"], text=True, timeout=60, check=True)
