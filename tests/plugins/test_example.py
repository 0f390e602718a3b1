"""Tests the example package after an installation by pip."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from learner.shared.observe.behavior_state import BehaviorState
from learner.training.trainers.registry import build
from tests.e2e.processes import ROOT, Processes, processes_in
from tests.learner.training.trainers.in_process import make_bench
from tests.plugins import page

pytestmark = pytest.mark.slow

PACKAGE = ROOT / "deploy" / "examples" / "rollcast_example"
INSTALL_SECONDS = 100
ENV = "rollcast_example.lamps:Lamps"
SHORT: dict[str, Any] = {"max_steps": 1000, "summary_freq": 300}
"""Of runs that try something else than learning."""
HYPERPARAMETERS = {"batch_size": 64, "buffer_size": 256, "num_epoch": 1}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the package into a folder without a network."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("*.egg-info", "build"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--target", folder / "site", source], check=True, capture_output=True, timeout=INSTALL_SECONDS
    )
    return folder / "site"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def run_file(folder: Path, trainer: str = "penalty", rollcast: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Writes the page's run file for a trainer, with changes to its `rollcast` block and to its behavior."""
    document = yaml.safe_load(page.run_file(trainer))
    document["behaviors"]["Lamps"] |= changes
    document["rollcast"] |= {"callbacks": ["told"], "torch_threads": 1, "drain_seconds": 2.0, **(rollcast or {})}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document | {"env_settings": {"seed": 3}}))
    return path


def patient(**changes: Any) -> dict[str, Any]:
    """Returns changes that select the trainer that extends APPO, for a short run."""
    return {"trainer_type": "patient", "hyperparameters": HYPERPARAMETERS, **SHORT, **changes}


def train(processes: Processes, site: Path, file: Path) -> Path:
    """Trains with one actor until the end of the run, by the commands of the page, and returns the run folder."""
    environment = {"PYTHONPATH": str(site)}
    learner = processes.learner(file, environment=environment)
    env, *options = page.arguments_of("rollcast act gym --env")
    assert env == ENV
    actor = processes.actor(learner.address, env, *options, environment=environment)
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    return learner.folder


def summary_of(folder: Path) -> dict[str, Any]:
    """Returns what a run resulted in."""
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def curve(folder: Path, name: str) -> list[float]:
    """Returns a statistic of a run, as the package's writer wrote it."""
    lines = [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def checked(site: Path, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `check-config` with the package and prints whether torch was imported."""
    program = (
        "import sys\nfrom learner.cli.cli import main\ncode = main(sys.argv[1:])\n"
        "print('torch' in sys.modules, file=sys.stderr)\nsys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "check-config", str(file), *arguments],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env={"PYTHONPATH": f"{site}"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "scalar"),
    [
        ("penalty", "Losses/Divergence"),
        pytest.param("awac", "Losses/Advantage Weight", marks=pytest.mark.nightly),
    ],
)
def test_all_that_the_page_shows_learns(
    trainer: str, scalar: str, site: Path, processes: Processes, tmp_path: Path
) -> None:
    """The page's run files reach their targets with the package's loss, trainer, encoder and signal.

    The signal is all they learn from, and what is to be done can be seen only through the encoder. The statistic that the
    loss reports moves, and is written like any other.
    """
    folder = train(processes, site, run_file(tmp_path, trainer))
    summary = summary_of(folder)
    assert (summary["stop_reason"], summary["mean_return_100"] >= 30) == ("target_return", True)
    assert curve(folder, "Policy/Brightness Reward")[-1] > 18  # of 20; 12 by chance
    values = curve(folder, scalar)
    assert min(values) >= 0
    assert len(set(values)) > 1
    assert f",{scalar}," in (folder / "Lamps" / "stats.csv").read_text()
    assert (folder / "told.txt").read_text() == f"target_return: Lamps {summary['policy_version']}\n"
    assert (folder / "Lamps.onnx").exists()


def test_its_actor_trains(site: Path, processes: Processes, tmp_path: Path) -> None:
    """`rollcast act` has the package's command: its rooms train like the Gymnasium ones, and each step has one fate."""
    environment = {"PYTHONPATH": str(site)}
    learner = processes.learner(run_file(tmp_path), environment=environment)
    words = page.arguments_of("rollcast act lamps")
    options = ["--learner", learner.address, "--log-format", "json"]
    actor = processes.python("actor", "-m", "actor_client", "lamps", *words, *options, environment=environment)
    learner.wait_for_version("Lamps", 1, actor)  # which checks the books of both sides
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    summary = summary_of(learner.folder)
    assert (summary["stop_reason"], summary["mean_return_100"] >= 30) == ("target_return", True)
    (books,) = actor.events("books")
    fates = sum(books[fate] for fate in ("acked", "unacked", "open", "spooled"))
    assert books["produced"] == fates + sum(books["discarded"].values()) + sum(books["dropped"].values())
    assert 0 < summary["ledger"]["received"] <= books["produced"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["lamps", "--steps", "0"], 10, "--steps '0': input should be greater than or equal to 1"),
        (["lamps", "--step", "9"], 10, "did you mean --steps?"),
        (["lamps", "--learner", "127.0.0.1:1", "--connect-timeout", "0.2"], 20, "did not answer within 0.2 s"),
    ],
)
def test_faults_at_its_actor_are_one_line(words: list[str], code: int, said: str, site: Path) -> None:
    """The package's command has the messages and exit codes of every actor."""
    done = subprocess.run(
        [sys.executable, "-m", "actor_client", *words],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env={"PYTHONPATH": f"{site}"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said in line
    assert "Traceback" not in done.stderr


def test_settings_of_packages_are_checked_and_shown(site: Path, tmp_path: Path) -> None:
    """Settings have their defaults, and only trainers and encoders import torch."""
    done = checked(site, run_file(tmp_path, trainer_type="ppo", network_settings={"hidden_units": 32}), "--json")
    assert (done.returncode, done.stderr.strip()) == (0, "False"), done.stderr
    shown = json.loads(done.stdout)["behaviors"]["Lamps"]
    assert shown["reward_signals"]["brightness"] == {"gamma": 0.5, "strength": 1.0, "full_scale": 255}
    done = checked(site, run_file(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["behaviors"]["Lamps"]["hyperparameters"]["target_divergence"] == 0.01


def test_the_penalty_follows_the_divergence_and_is_saved(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The penalty doubles after a large divergence, halves after a small one, and is saved."""
    monkeypatch.syspath_prepend(str(site))
    context = make_bench({"trainer_type": "penalty"}).context()
    trainer: Any = build(context)
    resumed: Any = build(context)
    penalties = []
    for divergence in (0.02, 0.02, 0.01, 0.005):
        trainer.after_update({"divergence": divergence})
        penalties.append(trainer.penalty)
    assert penalties == [2.0, 4.0, 4.0, 2.0]
    stats = trainer.stats()
    assert stats.numbers["penalty"] == 2.0
    assert BehaviorState("Lamps", numbers=stats.numbers, own_fields=stats.fields).all_numbers()["penalty"] == 2.0
    resumed.load_state_dict(trainer.state_dict())
    assert resumed.penalty == 2.0


@pytest.mark.nightly
@pytest.mark.parametrize("trainer", ["penalty", "patient"])
def test_a_trainer_of_a_package_runs_in_lock_step(
    trainer: str, site: Path, processes: Processes, tmp_path: Path
) -> None:
    """A trainer with the right traits trains in lock-step and can be repeated."""
    changes = patient(trainer_type=trainer, threaded=False)
    summary = summary_of(train(processes, site, run_file(tmp_path, rollcast={"lockstep": {"actors": 1}}, **changes)))
    assert summary["lockstep"]["reproducible"]
    assert summary["policy_version"] >= 2
