"""Tests what `rollcast unity` checks before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from actor_client.unity.dropin import cli
from actor_client.unity.dropin.exits import ExitCode
from actor_client.unity.dropin.flags import Given


@pytest.mark.parametrize("name", ["Nope", "plain.x86_64", "broken.x86_64", "run.yaml"])
def test_a_wrong_build_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A build of the command line that cannot start is refused before the learner resolves the run file."""

    def never(_given: Given) -> None:
        raise AssertionError("the learner was asked")

    monkeypatch.setattr(cli, "make_plan", never)
    (tmp_path / "plain.x86_64").write_text("#!/bin/sh\n")
    (tmp_path / "broken.x86_64").write_text("no program")
    (tmp_path / "broken.x86_64").chmod(0o755)
    assert cli.main(["run.yaml", "--env", str(tmp_path / name)]) == ExitCode.UNKNOWN_ENVIRONMENT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --env {tmp_path / name.removesuffix('.x86_64')}")
