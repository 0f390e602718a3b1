"""Tests `rollcast sweep`: trials that are runs, a study that continues however it ended, and actors that stay."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import rollcast
from optuna.trial import FrozenTrial, TrialState

from learner.shared.exits import ExitCode
from learner.shared.runfolder.lock import FolderLock
from tests.documents import run_page
from tests.e2e.processes import Child, Processes, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.ports import reserve_ports

PAYS = """
import gymnasium, numpy

class Pays(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def set_parameters(self, values):
        self.pay = values["pay"]

    def reset(self, *, seed=None, options=None):
        self.left = 10
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.left -= 1
        return numpy.zeros(1, numpy.float32), self.pay, self.left == 0, False, {}
"""
PAY = "--space=environment_parameters.pay=uniform:0:1"
RATE = "--space=learning_rate=log:1e-4:1e-2"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes in a folder with an environment that pays what a trial's settings say."""
    (tmp_path / "pays.py").write_text(PAYS)
    with processes_in(tmp_path, tmp_path) as started:
        yield started


def sweep(processes: Processes, *arguments: str, name: str = "sweep", **changes: Any) -> Child:
    """Starts `rollcast sweep` with a small run file."""
    run_file = write_run(processes.folder, {"B": small(**changes)})
    return processes.python(name, "-m", "rollcast", "sweep", str(run_file), "--http-address=127.0.0.1:0", *arguments)


def folder_of(processes: Processes) -> Path:
    """Returns the folder of the study."""
    return processes.folder / "results" / "sweep"


def trials(processes: Processes) -> list[FrozenTrial]:
    """Returns the trials of the study."""
    return optuna.load_study(study_name="sweep", storage=f"sqlite:///{folder_of(processes)}/study.db").trials


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_sweep_continues_after_its_end(processes: Processes, number: signal.Signals) -> None:
    """Killed or stopped, the same command continues the study and the runs that were cut off; every trial is a run."""
    words = ("--env=CartPole-v1", RATE, "--trials=4", "--parallel=2", "--pruner=none")
    first = sweep(processes, *words, max_steps=10_000)
    third = folder_of(processes) / "0002" / "address.json"
    wait_until(lambda: third.exists() or not first.is_running, "the third trial listens", said=first.said)
    first.signal(number)
    assert first.wait() == (ExitCode.OK if number is signal.SIGINT else -signal.SIGKILL), first.said()
    if number is signal.SIGINT:
        assert not any(FolderLock.is_held(folder) for folder in folder_of(processes).glob("0*"))
        assert not [trial for trial in trials(processes) if trial.state is TrialState.RUNNING]
    second = sweep(processes, *words, name="again", max_steps=10_000)
    assert second.wait() == ExitCode.OK, second.said()
    found = trials(processes)
    states = [trial.state for trial in found]
    assert states.count(TrialState.COMPLETE) == 4
    assert states.count(TrialState.FAIL) == len(found) - 4 > 0
    runs = sorted(folder_of(processes).glob("0*"))
    assert [run.name for run in runs] == ["0000", "0001", "0002", "0003"]
    generations = [int((run / "generation").read_text()) for run in runs]
    assert generations[2] == 2  # a trial that was cut off is continued in its own run
    assert sum(generations) <= len(found)
    for run in runs:
        summary = json.loads((run / "summary.json").read_text())
        assert (summary["run_id"], summary["stop_reason"]) == (f"sweep/{run.name}", "max_steps")
    page = (folder_of(processes) / "index.html").read_text()
    assert page.count("<tr") == 5 + page.count("<tr><th>learning_rate")
    assert "best so far" in page
    assert f"page: {Path('results/sweep/index.html')}" in second.out()


@pytest.mark.nightly
def test_worse_trials_end_early(processes: Processes) -> None:
    """Trials whose returns fall behind are ended, saved and recorded; the best settings are those that pay most."""
    words = (
        "--env=pays:Pays",
        PAY,
        "--trials=5",
        "--pruner=hyperband",
        "--seed=1",
        "--actor-args",
        "--max-env-failures=1",
    )
    child = sweep(processes, *words, max_steps=6000, summary_freq=250)
    assert child.wait() == ExitCode.OK, child.said()
    found = trials(processes)
    pruned = [trial for trial in found if trial.state is TrialState.PRUNED]
    assert pruned, child.said()
    assert len(pruned) < len(found)
    best = max(found, key=lambda trial: trial.params["environment_parameters.pay"])
    assert best.state is TrialState.COMPLETE
    assert best.value == pytest.approx(10 * best.params["environment_parameters.pay"], rel=0.01)
    assert f"best: {best.value:.4g} with" in child.out()
    for trial in pruned:
        summary = json.loads((folder_of(processes) / trial.user_attrs["folder"] / "summary.json").read_text())
        assert summary["stop_reason"] == "operator"
        assert summary["env_steps_trained"] < 6000 - 256
        assert max(trial.intermediate_values) < 6000 // 250


def test_actors_stay_from_trial_to_trial(processes: Processes) -> None:
    """One actor takes part in three trials, and leaves after the last one; each of its steps is in its books and a trial's."""
    address = f"127.0.0.1:{reserve_ports()}"
    actor = processes.actor(address, "CartPole-v1", "--log-level", "info")
    child = sweep(processes, RATE, "--trials=3", "--address", address, max_steps=2000)
    assert child.wait() == ExitCode.OK, child.said()
    assert actor.wait() == 0, actor.said()
    runs = [event["run_id"] for event in actor.events("connected")]
    assert runs == ["sweep/0000", "sweep/0001", "sweep/0002"]
    (books,) = actor.events("books")
    fates = books["acked"] + books["unacked"] + books["open"] + books["spooled"]
    assert books["produced"] == fates + sum({**books["discarded"], **books["dropped"]}.values())
    summaries = [json.loads((folder_of(processes) / run[-4:] / "summary.json").read_text()) for run in runs]
    assert [summary["stop_reason"] for summary in summaries] == ["max_steps"] * 3
    for summary in summaries:
        ledger, given_up = summary["ledger"], summary["actor_books"]
        assert ledger["received"] == ledger["trained"] + sum({**ledger["dropped"], **ledger["lost"]}.values())
        unsent = given_up["outstanding"] + sum({**given_up["discarded"], **given_up["dropped"]}.values())
        assert summary["env_steps_taken"] == ledger["received"] + unsent
    assert books["acked"] == summaries[-1]["ledger"]["received"]  # the books are those of its last session


def test_the_first_trial_that_fails_ends_a_sweep(processes: Processes) -> None:
    """Its error is that of the command."""
    child = sweep(processes, "--env=NoSuch-v1", RATE, "--trials=9")
    assert "`NoSuch` doesn't exist" in child.fails_with(11)
    child = sweep(processes, "--env=CartPole-v1", "--space=learning_rat=log:1:2", "--run-id=other", name="wrong")
    assert "did you mean 'learning_rate'" in child.fails_with(ExitCode.RUN_FILE)


def test_the_page_of_sweeps_runs(tmp_path: Path) -> None:
    """Its program is run as it stands, with the study as its result."""
    said = run_page("deploy/examples/SWEEPS.md", tmp_path, "assert isinstance(study, rollcast.Study)\n")
    assert "learning_rate" in said
    assert (tmp_path / "results" / "tuned" / "index.html").is_file()
    with pytest.raises(rollcast.RollcastError, match="names no setting"):
        rollcast.sweep("CartPole-v1", space={"": [1, 2]}, results_dir=tmp_path)
