"""Tests changes of settings of runs that train, by the command, by Python and over restarts."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rollcast
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from learner.shared.exits import ExitCode, UserError
from tests.e2e.lockstep import Actor, Run, differences, meanwhile, playing, settings
from tests.e2e.processes import Child, LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, small, write_run
from tests.e2e.test_trainer_deaths import is_back
from tests.ports import reserve_ports

NAME = "CartPole"
RATE = "Policy/Learning Rate"


def command(processes: Processes, learner: LearnerProcess, *words: str) -> Child:
    """Runs `rollcast set` to its end."""
    place = ("--run-id", learner.folder.name, "--results-dir", str(learner.folder.parent))
    done = processes.python(
        f"set-{len(learner.events('operator_request'))}-{len(words)}", "-m", "learner", "set", *words, *place
    )
    done.wait()
    return done


def journal(folder: Path) -> list[dict[str, Any]]:
    """Returns what the journal has of changes."""
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [event for event in events if event["event"].startswith("setting_")]


def steps_of(learner: LearnerProcess) -> int:
    """Returns the last step of the run as the status has it."""
    return learner.operator.status().run.behaviors[0].max_steps


def marks_of(learner: LearnerProcess) -> list[dict[str, Any]]:
    """Returns the marks of the curves; none before there are curves."""
    with suppress(UserError), learner.operator._exchange() as exchange:
        marks: list[dict[str, Any]] = exchange.ask("GET", f"/api/history?behavior={NAME}")["marks"]
        return marks
    return []


def test_a_change_is_recorded_and_outlives_processes(processes: Processes) -> None:
    """The journal, the audit, TensorBoard and the curves have it; killed trainers and a resumed run continue with it."""
    run_file = write_run(processes.folder, {NAME: cartpole(max_steps=10**8)}, checkpoint_seconds=600.0)
    port = reserve_ports()
    learner = processes.learner(run_file, port=port)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for_version(NAME, 2, actor)
    said = command(processes, learner, "max_steps=2e8", "target_return=600", "beta=0.25")
    assert said.out().splitlines() == [
        "CartPole.max_steps is 200000000, was 100000000",
        "target_return is 600.0, was null",
        "CartPole.beta is 0.25, was 0.0",
    ]
    assert (steps_of(learner), learner.operator.status().run.behaviors[0].target_return) == (2 * 10**8, 600.0)
    refused = command(processes, learner, "beta=0.5", "batch_size=64")
    assert "hyperparameters.batch_size cannot change while the run trains" in refused.fails_with(ExitCode.USAGE)

    noted = journal(learner.folder)
    assert {(each["setting"], each["old"], each["new"], each["by"]) for each in noted} == {
        ("CartPole.max_steps", 10**8, 2 * 10**8, "operator"),
        ("CartPole.beta", 0.0, 0.25, "operator"),
        ("target_return", None, 600.0, "operator"),
    }
    audited = [json.loads(line) for line in (learner.folder / "audit.jsonl").read_text().splitlines()]
    assert [(each["action"], each["result"]) for each in audited] == [("set", "ok"), ("set", "SETTING_REFUSED")]
    marks = learner.wait_for(
        lambda: marks_of(learner), "the curves of the behavior, which begin a moment after it", actor
    )
    assert "CartPole.beta is 0.25, was 0.0" in marks[0]["text"]
    assert "max_steps: 100000000" in (learner.folder / "configuration.yaml").read_text()

    os.kill(learner.trainers[0], signal.SIGKILL)
    learner.wait_for(lambda: is_back(learner, 2, 1), "the trainers are back", actor)
    learner.wait_for(lambda: steps_of(learner) == 2 * 10**8, "the trainers have told the last step", actor)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    again = processes.learner(run_file, "--resume", port=port)
    again.wait_for(lambda: is_back(again, 3, 1), "the learner is back", actor)
    again.wait_for(lambda: steps_of(again) == 2 * 10**8, "the trainers have told the last step", actor)
    assert "CartPole.beta is 0.0, was 0.25" in command(processes, again, "--undo").out()
    assert steps_of(again) == 10**8
    assert [each["event"] for each in journal(again.folder)][3:] == ["setting_undone"] * 3
    again.signal(signal.SIGTERM)
    assert again.wait() == 0, again.said()
    events: Any = EventAccumulator(str(again.folder / NAME))  # type: ignore[no-untyped-call]
    events.Reload()
    assert "Changes" in events.Tags()["tensors"]


@pytest.mark.parametrize(("trainer", "env"), [("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_a_live_run_trains_with_another_learning_rate(tmp_path: Path, trainer: str, env: str) -> None:
    """From the next update on, the curve of the learning rate has the value that Python set, and then the one before."""
    hyper = {"learning_rate": 1e-3, "learning_rate_schedule": "constant", "batch_size": 64}
    hyper |= {"steps_per_update": 20} if trainer == "sac" else {"buffer_size": 256}
    ports = {"torch_threads": 1, "address": "127.0.0.1:0", "http_address": "127.0.0.1:0"}
    behavior = small(trainer_type=trainer, hyperparameters=hyper, summary_freq=256)
    given = {"behaviors": {"Pole": behavior}, "rollcast": ports}
    with rollcast.train(env, given, wait=False, target_return=None, results_dir=tmp_path) as run:

        def rates() -> list[float]:
            found = run.history().get(RATE, np.array([]))
            return [float(rate) for rate in found[np.isfinite(found)]]

        wait_until(rates, "a first summary")
        assert run.set("learning_rate", 1e-4) == {"Pole.learning_rate": 1e-4}
        wait_until(lambda: rates()[-1] == pytest.approx(1e-4), "the new learning rate")
        assert run.undo() == {"Pole.learning_rate": 1e-3}
        count = len(rates())
        wait_until(lambda: len(rates()) > count + 1 and rates()[-1] == pytest.approx(1e-3), "the old learning rate")
        with pytest.raises(rollcast.RollcastError, match="there is no setting 'learning_rat'; did you mean") as caught:
            run.set(learning_rat=1)
        assert caught.value.exit_code == ExitCode.USAGE
        with pytest.raises(rollcast.RollcastError, match="nothing to undo"):
            run.undo()


def test_an_undone_change_leaves_no_trace_in_lockstep(tmp_path: Path) -> None:
    """A run in which settings are set and set back between two updates ends bit by bit as one that was left alone."""

    def change(run: Run) -> None:
        operator = run.operator()
        operator.pause()
        wait_until(lambda: operator.status().run.behaviors, "a behavior")
        operator.set({"learning_rate": "0.5", "num_epoch": "9", "max_steps": "1e6", "target_return": "1"})
        operator.undo()
        operator.resume()

    runs = []
    for name in ("quiet", "changed"):
        (tmp_path / name).mkdir()
        run = Run(tmp_path / name, {NAME: settings(max_steps=60 * 3 * 48)}, {"actors": 1, "quota_steps": 48})
        with playing(run, Actor("only")):
            if name == "quiet":
                assert run.serve() == ExitCode.OK
            else:
                with meanwhile(partial(change, run)):
                    assert run.serve() == ExitCode.OK
        runs.append(run)
    assert [each["event"] for each in journal(runs[1].folder)] == ["setting_changed"] * 4 + ["setting_undone"] * 4
    assert differences(runs[0].final(), runs[1].final()) == []
    assert differences(runs[0].state()["trainers"], runs[1].state()["trainers"]) == []
    assert json.loads((runs[1].folder / "summary.json").read_text())["lockstep"]["reproducible"]
