"""Tests that commands end with one exit code for one kind of failure."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from rollcast.auth import Role
from rollcast.errors import Draining

from learner.cli.cli import build_parser, main
from learner.service.identity.access import Access, own_row
from learner.service.identity.setup import Identity
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import BoundAddresses, write_addresses
from tests.learner.service.calls.harness import PAGE_TOKEN, running
from tests.learner.start.run_folders import run_folder, trained_run

NOBODY = "127.0.0.1:1"
OPERATORS = ("status", "pause", "resume", "save", "drain", "healthcheck", "release actor", "set --undo")


@pytest.mark.parametrize(
    "words",
    [
        *(["status"], ["page"], ["pause"], ["resume"], ["save"], ["drain"], ["healthcheck"]),
        *(["evaluate"], ["compare"], ["backup"], ["tournament"], ["serve", "--resume", "--run-id"]),
    ],
    ids=" ".join,
)
def test_an_unknown_run_has_one_code(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that names a run ends with 13 if there is none of this name."""
    (tmp_path / "run.yaml").write_text("behaviors: {A: {trainer_type: ppo}}\n")
    serve = [str(tmp_path / "run.yaml"), "--address", "127.0.0.1:0"]  # the usual port may be another's
    more = {"backup": [str(tmp_path / "copies")], "serve": serve}.get(words[0], [])
    assert main([*words, "nobody", *more, "--results-dir", str(tmp_path)]) == ExitCode.NOTHING_TO_RESUME
    assert "no run 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--token-file", "--tls-ca"])
@pytest.mark.parametrize("content", [None, b"x"], ids=["missing", "damaged"])
@pytest.mark.parametrize(
    "command", [*(f"{each} --control" for each in OPERATORS), "trainer --trainers 1 --rank 0 --learner"]
)
def test_an_unusable_file_of_a_flag_has_one_code(
    command: str, content: bytes | None, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that a flag names and that cannot be used is a fault of the command line (10)."""
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    assert main([*command.split(), NOBODY, flag, str(file)]) == ExitCode.USAGE
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["compare ended --svg FILE/x.svg", "certs init FILE/x", "backup ended FILE/x"],
)
def test_an_output_that_cannot_be_written_has_one_code(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be written ends a command with 43."""
    trained_run(tmp_path / "results", "ended", {"Walker": [1.0, 2.0]})
    (tmp_path / "FILE").write_text("a file in the place of a folder")
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == ExitCode.NOT_SAVED
    assert "FILE" in capsys.readouterr().err


def test_a_run_file_that_cannot_be_written_has_that_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that was removed, init ends with 43, too."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert main(["init", "cartpole"]) == ExitCode.NOT_SAVED


async def test_what_the_learner_refuses_has_one_code(tmp_path: Path) -> None:
    """A command that the learner answers and refuses ends with 22: an unknown actor, a run that ends."""
    token = tmp_path / "token"
    token.write_text(PAGE_TOKEN)
    access = Access(own=[own_row("operator", Role.OPERATOR, PAGE_TOKEN)])
    async with running(identity=Identity(access)) as learner:
        control = ("--control", await learner.operators(), "--token-file", str(token))

        async def code_of(*words: str) -> int:
            parsed = build_parser().parse_args([*words, *control])
            with pytest.raises(UserError) as caught:
                await asyncio.to_thread(parsed.run, parsed)
            return caught.value.exit_code

        assert await code_of("release", "nobody") == ExitCode.NOT_ALLOWED
        learner.hooks.error = Draining("the run ends")
        assert await code_of("pause") == ExitCode.NOT_ALLOWED


@pytest.mark.parametrize(
    "words",
    [
        *(("status",), ("page",), ("pause",), ("healthcheck",), ("drain",), ("save",)),
        *(("evaluate",), ("backup", "copies"), ("compare",), ("tournament",)),
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_may_not_be_read_is_named(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run folder of mode 000 is one line in each command, and hides no other run."""
    run = run_folder(tmp_path, "run")
    write_addresses(run, BoundAddresses(NOBODY, NOBODY))
    for name in ("stat", "open"):
        _refuse_below(run, name, monkeypatch)
    more = ("other",) if words[0] in {"compare", "tournament"} else ()
    code = main([words[0], "run", *more, *words[1:], "--results-dir", str(tmp_path)])
    said = capsys.readouterr().err
    assert code in {ExitCode.USAGE, ExitCode.NOTHING_TO_RESUME}
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    if words[0] in {"status", "page", "healthcheck"}:
        assert main([words[0], "--results-dir", str(tmp_path)]) == ExitCode.UNREACHABLE
        assert "no running learner found" in capsys.readouterr().err


def _refuse_below(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a call of `os` fail as in a folder that this user may not enter; tests may run as root."""
    real = getattr(os, name)

    def refused(path: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(path, str | Path) and folder in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, name, refused)
