"""Runs each measurement for some seconds with real processes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.e2e.processes import wait_until
from tests.tools.bench import cli, learner_cpu, processes, tls_runs, unity_runs
from tests.tools.bench.environments import PeerEnvironment
from tests.tools.bench.limits import runs
from tests.tools.bench.measurement import MeasurementFailed, Unavailable
from tests.tools.bench.processes import Child

pytestmark = pytest.mark.timeout(600)  # several trainings, on a machine that may be busy

STUBBORN_FAMILY = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("child", os.getpid(), flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """Returns whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def measured(folder: Path, *arguments: str) -> dict[str, dict[str, float]]:
    """Runs a command once and returns its figures by contestant; all must have some."""
    assert cli.main([*arguments, "--rounds", "1", "--out", str(folder)]) == 0
    found = json.loads((folder / "bench.json").read_text(encoding="utf-8"))["contestants"]
    assert not (folder / "tmp").exists()
    return {name: each["rounds"][0]["values"] for name, each in found.items()}


def test_rollcast_and_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real run reaches the target, and the table has it and both limits."""
    monkeypatch.setattr(runs, "SECONDS", 0.05)
    figures = measured(tmp_path, "--skip", "sb3", "--skip", "sf")
    assert set(figures) == {"rollcast", "stepping", "minibatches"}
    assert all(each["steps_per_second"] > 0 for each in figures.values())
    assert "seconds to 475" in capsys.readouterr().out


def test_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkout compares with itself, and a replay trainer takes all its steps."""
    steps = {"cartpole-fast": 20_000, "pendulum-sac": 1000}
    rows = tuple(replace(row, steps=steps.get(row.name, row.steps)) for row in learner_cpu.ROWS)
    monkeypatch.setattr(learner_cpu, "ROWS", rows)
    monkeypatch.setattr(learner_cpu.Side, "at", lambda root: learner_cpu.Side("again", root, Path(sys.executable)))
    figures = measured(tmp_path, "cpu", "--rows", *steps, "--against", str(processes.REPOSITORY))
    assert set(figures) == {name + end for name in steps for end in ("", "-against")}
    assert all(each[learner_cpu.CPU_SECONDS] > 0 for each in figures.values())
    assert "second / first, pairs" in capsys.readouterr().out


def test_an_environment_of_another_checkout_is_refused(tmp_path: Path) -> None:
    """A folder without an environment, or with one that imports another checkout, is refused."""
    with pytest.raises(MeasurementFailed, match="does not exist; run `make venv`"):
        learner_cpu.Side.at(tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(MeasurementFailed, match=r"imports .*actor_client, which is not in"):
        learner_cpu.Side.at(tmp_path)


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures arrive and trainings end with TLS and a token too."""
    monkeypatch.setattr(tls_runs, "INGEST_SECONDS", 1.0)
    monkeypatch.setattr(tls_runs, "FAST", replace(tls_runs.FAST, steps=20_000))
    figures = measured(tmp_path, "tls")
    assert figures["pixel-ingest-tls"][tls_runs.BYTES_PER_SECOND] > 0
    assert figures["cartpole-fast-tls"][learner_cpu.CPU_SECONDS] > 0


def test_unity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of `mlagents-learn` starts a learner, a gateway and the player."""
    document = yaml.safe_load(unity_runs.RUN_FILE.read_text())
    document["behaviors"]["CartPole"]["max_steps"] = 3000
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump(document))
    monkeypatch.setattr(unity_runs, "RUN_FILE", short)
    assert measured(tmp_path / "bench", "unity", "--skip", "mlagents")["rollcast"]["steps_per_second"] > 0


def test_hostile(tmp_path: Path) -> None:
    """A pair of short blocks brings acks of both kinds, and every attack is carried out."""
    cli.main(["hostile", "--pairs", "1", "--block-seconds", "12", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "hostile.json").read_text(encoding="utf-8"))
    assert min(found[kind]["acks"] for kind in ("quiet_seconds", "hostile_seconds")) > 10
    assert {name.split()[0] for name in found["attacks"]} == {f"R{n}" for n in range(1, 13) if n != 5}


def test_a_peer_that_cannot_be_installed_is_named(tmp_path: Path) -> None:
    """The message has pip's error, and the bench continues."""
    peer = PeerEnvironment(str(tmp_path / "venv"), "no-such-peer", ((str(tmp_path / "no-such-folder"),),))
    with pytest.raises(Unavailable, match=r"no-such-peer cannot be installed: pip ended .*[^$]*no-such-folder"):
        peer.ensure(tmp_path / "log")


def test_a_child_ends_with_everything_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole group is ended, by force if needed; a child has the cores that it was given."""
    monkeypatch.setattr(processes, "END_SECONDS", 0.2)
    core = max(os.sched_getaffinity(0))
    with Child("family", [sys.executable, "-c", STUBBORN_FAMILY], tmp_path / "log", cores={core}) as child:
        child.wait_until(lambda: "child" in child.log(), "the fork", 300)
        grandchild = int(child.log().split()[1])
        assert os.sched_getaffinity(grandchild) == {core}
    wait_until(lambda: not is_alive(grandchild), "it has ended")
    command = [sys.executable, "-c", "print('what went wrong'); raise SystemExit(3)"]
    with (
        Child("the thing", command, tmp_path / "log") as child,
        pytest.raises(MeasurementFailed, match=r"the thing ended with exit status 3[^$]*what went wrong"),
    ):
        child.wait_for_success(300)
