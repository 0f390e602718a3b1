"""Tests the start of the trainers' process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from learner.commands.trainer import place_among_ranks
from learner.commands.trainer_start import PROGRAM, StartedTrainers, environment
from learner.common.exits import ExitCode, UserError
from learner.link.door import Door


@pytest.mark.parametrize("rank", [None, "0"])
def test_a_process_whose_service_has_ended_says_nothing(rank: str | None) -> None:
    """The service may end on a fault of the run file before the process dials; only the service reports it."""
    door = Door(inherits_ring=rank is None)
    ranks = {} if rank is None else {"RANK": rank, "WORLD_SIZE": "2"}
    environment = {**os.environ, **door.environment(), **ranks}
    door.close()
    done = subprocess.run(
        [sys.executable, *PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.TRAINER_FAILED, "", "")


def test_the_trainers_get_neither_ranks_of_others_nor_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of torchrun are left out, and modules are found where the service finds them."""
    for name in ("RANK", "WORLD_SIZE", "PET_NNODES", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    found = environment()
    assert not {"RANK", "WORLD_SIZE", "PET_NNODES", "TORCHELASTIC_RUN_ID", "PYTHONSAFEPATH"} & found.keys()
    assert found["KEPT"] == "1"
    here = {"", str(Path.cwd())}
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in here])
    assert environment()["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(("rank", "size"), [("x", "2"), ("0", "")])
def test_ranks_that_are_no_numbers_are_refused(rank: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variables."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(UserError, match="the variables RANK and WORLD_SIZE, which torchrun sets, are not numbers"):
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
