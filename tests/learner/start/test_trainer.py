"""Tests the start of the trainers' process, and trainers without a service."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from learner.cli.cli import main
from learner.link.local import LocalListener
from learner.shared.exits import ExitCode, UserError
from learner.start.trainer import place_among_ranks
from learner.start.trainer_start import PROGRAM, StartedTrainers, environment
from tests.actor_client.unity.players.programs import is_running
from tests.e2e.processes import wait_until


@pytest.mark.slow
@pytest.mark.parametrize("rank", [None, "0"])
def test_a_process_whose_service_has_ended_says_nothing(rank: str | None) -> None:
    """The service may end on a fault of the run file before the process dials; only the service reports it."""
    door = LocalListener(inherits_ring=rank is None)
    ranks = {} if rank is None else {"RANK": rank, "WORLD_SIZE": "2"}
    environment = {**os.environ, **door.environment(), **ranks}
    door.close()
    done = subprocess.run(
        [sys.executable, *PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.TRAINER_FAILED, "", "")


def test_the_trainers_get_neither_ranks_of_others_nor_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of torchrun are left out, and modules are found where the service finds them."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    found = environment()
    assert not {"RANK", "WORLD_SIZE", "PYTHONSAFEPATH"} & found.keys()
    assert found["KEPT"] == "1"
    here = {"", str(Path.cwd())}
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in here])
    assert environment()["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(("rank", "size"), [("x", "2"), ("0", "")])
def test_ranks_that_are_no_numbers_are_refused(rank: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variables."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(UserError, match="the variables RANK and WORLD_SIZE, which launchers set, are not numbers"):
        place_among_ranks()


@pytest.mark.parametrize("fault", ["path", "size", "gone"])
def test_a_link_without_a_place_is_an_error_in_words(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path too long for a socket, a limit of file sizes, or a removed folder leave nothing behind."""
    folder = tmp_path if fault != "path" else tmp_path / ("long" * 30)
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder if fault != "gone" else folder / "gone"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if fault == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        with pytest.raises(
            UserError, match=r"the trainers cannot be started: .*\(TMPDIR\) must have a path of at most 80"
        ):
            StartedTrainers()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_lone_trainer_outlives_its_shell_and_ends_at_a_signal(tmp_path: Path) -> None:
    """A trainer that no torchrun started, and that waits for its learner, belongs to nobody."""
    said = tmp_path / "said"
    script = f"{sys.executable} -m learner trainer --learner 127.0.0.1:1 > {said} 2>&1 <&- & echo $!; read -r _"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        trainer = int(shell.stdout.readline())
        wait_until(lambda: said.exists() and "waits for the learner" in said.read_text(), "it dials")
        shell.communicate(b"\n", 20.0)
    assert is_running(trainer)
    os.kill(trainer, signal.SIGINT)
    wait_until(lambda: not is_running(trainer), "it ends")
    assert "SIGINT received" in said.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tls-cert", "a"), "--tls-cert and --tls-key belong together"),
        (("--tls-cert", "a", "--tls-key", "b"), "--tls-cert and --server-name need TLS"),
        (("--server-name", "a"), "--tls-cert and --server-name need TLS"),
        (("--tls-ca", "a"), "a cannot be read"),
    ],
)
def test_an_identity_that_cannot_be_used(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trainer with half an identity does not dial."""
    assert main(["trainer", "--learner", "127.0.0.1:1", *options]) == ExitCode.USAGE
    assert words in capsys.readouterr().err
