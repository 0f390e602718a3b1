"""Tests that the entry points find Rollcast's packages or name the one that hides them."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rollcast.console import COMMANDS, SHADOWED
from rollcast.extras import install
from rollcast.parsers import subparsers_of

from actor_client import __main__ as actor_main
from actor_client.cli import build_parser as actor_parser
from actor_client.exits import ExitCode as ActorCode
from actor_client.unity.dropin.exits import ExitCode as UnityCode
from learner.cli.cli import build_parser as learner_parser
from learner.shared.exits import ExitCode as LearnerCode

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


ALIASES = {"act": "rollcast-actor", "unity": "rollcast-unity", "play": "rollcast-actor", "join": "rollcast-actor"}
"""Aliases of the commands that are not those of `rollcast-learner`."""


def started(monkeypatch: pytest.MonkeyPatch, command: str, *arguments: str) -> int:
    """Runs a command by its entry point, and returns its exit code."""
    script, *words = command.split()
    arguments = (*words, *arguments)
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
        ("rollcast serve", "learner", "cli = 1"),
        ("rollcast act", "actor_client", "raise RuntimeError('no GPU')"),
        ("rollcast train", "actor_client", "cli = 1"),
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
    "command",
    [
        ("actor_client", "gym", "--env", "x"),
        ("learner", "check-config", "learner/run_files/cartpole.yaml", "--can-start", "--http-address", "127.0.0.1:0"),
    ],
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


def helped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Returns the help of a command as printed."""
    assert started(monkeypatch, *command, "--help") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_help_lists_every_command_in_groups_on_one_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command has one line of help, and nothing heavy is loaded for it."""
    out = helped(monkeypatch, capsys, "rollcast")
    assert all(re.search(rf"^  {name} +\S", out, flags=re.MULTILINE) for name in COMMANDS)
    assert (len(out.splitlines()) <= 50, max(map(len, out.splitlines())) <= 100) == (True, True)
    listed = [name for parser in (learner_parser(), actor_parser()) for name in subparsers_of(parser)]
    assert set(listed) - set(COMMANDS) == {
        "gym",
        "pettingzoo",
        "godot",
        "boards",
        "clients",
        "conform",
        "dm-env-rpc",
    }, "of rollcast act"
    assert set(COMMANDS) == {*listed, "act"} - {
        "gym",
        "pettingzoo",
        "godot",
        "boards",
        "clients",
        "conform",
        "dm-env-rpc",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_by_rollcast_and_by_the_alias(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same flags, and each shows the name by which it was called."""
    mine = helped(monkeypatch, capsys, "rollcast", name)
    alias = ALIASES.get(name, "rollcast-learner")
    theirs = helped(monkeypatch, capsys, alias, *(() if name in {"act", "unity"} else (name,)))
    assert mine.startswith(f"usage: rollcast {name} ")
    assert theirs.startswith(f"usage: {alias} ")
    if name != "act":  # which leaves play and join to rollcast itself
        assert flags_in(mine) == flags_in(theirs)


def flags_in(text: str) -> list[str]:
    """Returns the flags in a help."""
    return re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("rollcast serv", 10, "error: there is no command 'serv'; did you mean serve?; see rollcast --help"),
        ("rollcast --verson", 10, "error: unrecognized arguments: --verson; see rollcast --help"),
        ("rollcast serve --nothing", 10, "see rollcast serve --help"),
        ("rollcast-learner serve --nothing", 10, "see rollcast-learner serve --help"),
        ("rollcast act gym --nothing", 10, "see rollcast act gym --help"),
        ("rollcast act play", 10, "invalid choice: 'play'"),
        ("rollcast play", 10, "MODEL.onnx; see rollcast play --help"),
        ("rollcast unity --nothing", 10, "see rollcast unity --help"),
        ("rollcast train", 10, "required: --env; see rollcast train --help"),
    ],
)
def test_a_wrong_command_line_is_one_line_that_names_the_command_as_called(
    command: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is the same for all commands; the help that is named exists."""
    assert started(monkeypatch, command) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_command_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installation of one side alone has the help, and says in one line what the other side's commands need."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "learner" else found(name))
    assert started(monkeypatch, "rollcast serve") == LearnerCode.MISSING_EXTRA
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == f"error: rollcast serve needs the package 'learner', which is not installed here: {install('learner')}"
    )
    assert started(monkeypatch, "rollcast act gym", "--help") == 0
    assert "rollcast train" not in capsys.readouterr().err
    assert started(monkeypatch, "rollcast", "--print-completion", "fish") == 0
    out = capsys.readouterr().out
    assert ("-a 'act'" in out, "-a 'serve'" in out) == (True, False)


@pytest.mark.slow
def test_rollcast_as_a_module_loads_nothing_heavy() -> None:
    """`python -m rollcast` lists the commands without the libraries of either side."""
    program = (
        "import runpy, sys; sys.argv = ['rollcast', '--help']\n"
        "try: runpy.run_module('rollcast', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'grpc', 'pydantic', 'learner', 'actor_client', 'shtab'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("usage: rollcast ")
    assert done.stdout.endswith("[]\n")


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
    for shell in ("bash", "zsh", "tcsh", "fish"):
        assert started(monkeypatch, script, "--print-completion", shell) == 0
        scripts[shell] = capsys.readouterr().out
    assert all(script in text for text in scripts.values())
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n"], input=scripts["bash"], text=True, timeout=300, check=True)
