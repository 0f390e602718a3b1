"""Tests that the entry points find Rollcast's packages or name the one that hides them."""

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rollcast.console import SHADOWED

from actor_client import __main__ as actor_main
from actor_client.exits import ExitCode as ActorCode
from actor_client.unity.dropin.exits import ExitCode as UnityCode
from learner.common.exits import ExitCode as LearnerCode

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def started(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> int:
    """Runs a command by its entry point, and returns its exit code."""
    module, _, function = SCRIPTS[script].partition(":")
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.setattr(actor_main, "limit_end", lambda: None)  # the process of the tests goes on
    try:
        code = getattr(importlib.import_module(module), function)()
    except SystemExit as ended:
        code = ended.code
    return int(code)


@pytest.mark.parametrize(
    "shadow",
    [
        ("rollcast-learner", "learner", "cli = 1"),
        ("rollcast-actor", "actor_client", "raise RuntimeError('no GPU')"),
        ("rollcast-unity", "learner", "import no_such_module"),
    ],
)
def test_another_package_of_the_same_name_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shadow: tuple[str, str, str],
) -> None:
    """Another package of the same name is refused in one line with its path and the next step."""
    script, package, content = shadow
    monkeypatch.delitem(sys.modules, package)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{package}.py").write_text(content)
    assert started(monkeypatch, script, "--version") == SHADOWED
    (line,) = capsys.readouterr().err.splitlines()
    found = f"the one at {tmp_path / package}.py" if content == "cli = 1" else "another one, which cannot be imported"
    assert line.startswith(f"error: the package {package!r} is not Rollcast's, but {found}")
    assert "uninstall it" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("grpc", "__version__ = '1.62.3'", "grpcio>=1.75.1, and found version 1.62.3"),
        ("structlog", "__version__ = '20.1.0'", "structlog>=24.1, and found version 20.1.0"),
    ],
)
@pytest.mark.parametrize(
    "command", [("actor_client", "gym", "--env", "x"), ("learner", "status", "--control", "127.0.0.1:9")]
)
def test_a_requirement_that_is_too_old_is_named(
    tmp_path: Path, command: tuple[str, ...], module: str, text: str, words: str
) -> None:
    """Where another folder's version comes first, one line names both versions and the folder; without that folder all works."""
    (tmp_path / f"{module}.py").write_text(text)

    def said(path: str) -> tuple[int, str]:
        line = [sys.executable, "-m", *command]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env=environment)
        return done.returncode, done.stderr

    code, error = said(str(tmp_path))
    assert code == SHADOWED
    assert f"error: Rollcast needs {words} at {tmp_path / module}.py: run pip install" in error
    assert "Traceback" not in error
    assert said("")[0] not in {1, SHADOWED}


@pytest.mark.slow
def test_rollcast_unity_names_a_grpcio_that_only_its_processes_refuse(tmp_path: Path) -> None:
    """An older grpcio can be imported; what was generated for a newer one refuses it: 19, and the line of the other commands."""
    package = tmp_path / "grpc"
    package.mkdir()
    real = Path(importlib.import_module("grpc").__path__[0])
    (package / "__init__.py").write_text(
        f"__path__ = [{str(real)!r}]\nwith open({str(real / '__init__.py')!r}) as file:\n    exec(file.read())\n"
        "__version__ = '1.62.3'\n"
    )
    (tmp_path / "run.yaml").write_text("behaviors: {B: {trainer_type: ppo}}\n")
    build = tmp_path / "Build.x86_64"
    build.write_text("#!/bin/sh\n")
    build.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-m", "actor_client.unity.dropin", "run.yaml", "--address=127.0.0.1:0", "--env=Build.x86_64"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == SHADOWED, done.stderr
    (line,) = set(done.stderr.splitlines())
    assert line.startswith("error: Rollcast needs grpcio>=1.75.1, and found version 1.62.3")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_commands_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str) -> None:
    """The entry points run the commands."""
    assert started(monkeypatch, script, "--version") == 0
    out, err = capsys.readouterr()
    assert (out.startswith("rollcast "), err) == (True, "")


def test_the_exit_code_is_one_that_the_commands_document() -> None:
    """The exit code is listed by `--help` of each command."""
    assert {code.SHADOWED for code in (LearnerCode, ActorCode, UnityCode)} == {SHADOWED}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_shells_get_a_completion_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    """Bash accepts its completion script, and other shells have one."""
    scripts = {}
    for shell in ("bash", "zsh", "tcsh"):
        assert started(monkeypatch, script, "--print-completion", shell) == 0
        scripts[shell] = capsys.readouterr().out
    assert all(script in text for text in scripts.values())
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n"], input=scripts["bash"], text=True, timeout=300, check=True)
