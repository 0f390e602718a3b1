"""Tests deploy/slurm/rollcast.sbatch on a cluster of two nodes, requeue included."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents import commands, section
from tests.e2e.runs import small, write_run
from tests.nightly.stack.machine import ROOT, run, wait_until
from tests.nightly.stack.slurm import Slurm, cluster

pytestmark = pytest.mark.timeout(900)

RUN_ID = "walk"
ACTORS = 3


def progress(folder: Path) -> dict[str, Any]:
    """Returns the progress of the run; empty before there is one."""
    path = folder / "results" / RUN_ID / "progress.json"
    return json.loads(path.read_text()) if path.exists() else {}


def trained(folder: Path) -> int:
    """Returns how many steps were trained."""
    return sum(row["env_steps_trained"] for row in progress(folder).get("behaviors", {}).values())


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """Returns the events of one name of the run."""
    lines = (folder / "results" / RUN_ID / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_a_job_is_requeued_and_continues_its_run(tmp_path: Path) -> None:
    """A job trains over TLS, saves and returns to the queue at its signal, and continues the run until its end."""
    folder = tmp_path / "submitted"
    folder.mkdir()
    programs = str(Path(sys.executable).parent)
    for words in commands(section("deploy/CLUSTERS.md", "Slurm"))[:2]:
        run([f"{programs}/{words[0]}", *words[1:]], folder=folder)
    write_run(folder, {"CartPole": small(max_steps=60_000)}, checkpoint_seconds=2.0)
    with cluster(tmp_path / "slurm") as slurm:
        job = submit(slurm, folder, programs)
        log = folder / f"rollcast-{job}.log"

        def said() -> str:
            return (log.read_text()[-4000:] if log.exists() else "") + slurm.said()

        wait_until(lambda: trained(folder) > 2_000, f"it trains\n{said()}", seconds=120)
        slurm.command("scancel", "--batch", "--signal=TERM", job, folder=folder)
        wait_until(lambda: slurm.state(job) == "PENDING", f"it is in the queue\n{said()}", seconds=60)
        # Slurm itself waits two minutes. A node refuses a job whose credential is of the second in which it revoked the last one.
        slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now+5", folder=folder)
        wait_until(lambda: len(events(folder, "started")) == 2, f"it goes on\n{said()}", seconds=240)
        wait_until(lambda: slurm.state(job) == "COMPLETED", f"the run ends\n{said()}", seconds=240)
    first, second = events(folder, "started")
    assert (first["resumed"], second["resumed"]) == (False, True)
    assert [event["reason"] for event in events(folder, "finished")] == ["signal", "max_steps"]
    joined = {event["actor"] for event in events(folder, "actor_joined")}
    assert len(joined) >= ACTORS
    summary = json.loads((folder / "results" / RUN_ID / "summary.json").read_text())
    assert (summary["generation"], summary["stop_reason"]) == (2, "max_steps")
    assert summary["env_steps_taken"] >= 60_000


def submit(slurm: Slurm, folder: Path, programs: str) -> str:
    """Submits the job as the page says, with few tasks, and returns its number."""
    *_, (sbatch, *words) = commands(section("deploy/CLUSTERS.md", "Slurm"))
    assert words[:2] == ["--nodes=4", "--ntasks=33"]
    words = ["--nodes=2", f"--ntasks={1 + ACTORS}", *words[2:]]
    script = words.index("deploy/slurm/rollcast.sbatch")
    words[script : script + 2] = [str(ROOT / words[script]), "run.yaml"]
    environment = f"ALL,PATH={programs}:/usr/bin:/bin,RUN_ID={RUN_ID}"
    told = slurm.command(sbatch, "--parsable", f"--export={environment}", *words, folder=folder)
    return told.strip()
