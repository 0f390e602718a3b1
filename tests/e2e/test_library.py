"""Tests Rollcast as a library: programs that train, watch and act by `import rollcast`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jupyter_client
import nbclient
import nbformat
import numpy as np
import pytest
import rollcast
import torch
import yaml

from learner.shared.exits import ExitCode
from learner.shared.runfolder.lock import FolderLock
from tests.documents import ROOT, run_page, text_of
from tests.e2e.lockstep import differences
from tests.e2e.processes import SECONDS, processes_in, wait_until
from tests.e2e.runs import small

LIGHT = (
    "import sys, rollcast\n"
    "print([name for name in ('torch', 'grpc', 'numpy', 'learner', 'actor_client') if name in sys.modules])\n"
    "print(set(rollcast.__all__) <= set(dir(rollcast)))\n"
)
PROGRAM = """
import rollcast
if __name__ == "__main__":
    try:
        with rollcast.train("CartPole-v1", {settings!r}, wait=False, run_id="run", results_dir={folder!r}, http_address="127.0.0.1:0") as run:
            for state in run:
                if state.behaviors and state.behaviors[0].version:
                    print("trains", flush=True)
            print("ended", flush=True)
    except KeyboardInterrupt:
        print("interrupted", run.is_running, run.summary["stop_reason"], flush=True)
"""


def settings(**changes: Any) -> dict[str, Any]:
    """Returns what a run file would hold."""
    return {
        "behaviors": {"Pole": small(**changes)},
        "rollcast": {"torch_threads": 1, "address": "127.0.0.1:0", "http_address": "127.0.0.1:0"},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> rollcast.Run:
    """Returns a run that has ended."""
    folder = tmp_path_factory.mktemp("library")
    return rollcast.train("CartPole-v1", settings(), max_steps=2000, results_dir=folder, run_id="run", seed=3)


def test_the_import_is_light() -> None:
    """It loads neither side, and knows its names."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert done.stdout.splitlines() == ["[]", "True"]


def test_unknown_names_are_unknown() -> None:
    """A name that the library lacks is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        rollcast.trian  # type: ignore[attr-defined] # noqa: B018


def test_a_run_has_results_when_it_has_ended(trained: rollcast.Run) -> None:
    """Its folder has the summary, the curves and the policy; nothing of it runs."""
    assert not trained.is_running
    assert trained.summary["stop_reason"] == "max_steps"
    assert trained.summary["env_steps_trained"] >= 2000 - 256
    history = trained.history()
    assert len(history["step"]) == len(history["Environment/Cumulative Reward"]) > 0
    assert np.all(np.diff(history["step"]) > 0)
    assert trained.latest_policy().path == rollcast.load_policy(trained.folder).path
    with pytest.raises(rollcast.RollcastError, match="does not listen"):
        trained.pause()
    trained.stop()


def test_a_loaded_policy_acts(trained: rollcast.Run) -> None:
    """It takes an observation or a batch of them, draws or takes the likeliest action, and refuses other shapes."""
    policy = rollcast.load_policy(trained.folder, behavior="Pole")
    assert (policy.behavior, policy.run_id) == ("Pole", "run")
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    actions = policy.act(observations)
    assert actions.shape == (64,)
    assert [policy.act(each) for each in observations] == actions.tolist()
    drawn = np.array([policy.act(observations, deterministic=False) for _ in range(20)])
    assert set(drawn.ravel().tolist()) == {0, 1}
    assert np.all(policy.act(observations, masks=np.tile([0, 1], (64, 1))) == 1)
    for wrong in (observations[0, :3], observations[None], {"a": observations}):
        with pytest.raises(rollcast.RollcastError, match=r"takes .* \[4\], or a batch"):
            policy.act(wrong)


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("none", {}, "is not a run with a model"),
        ("run", {"behavior": "Cart"}, "of Cart; it has those of Pole"),
        ("run", {"checkpoint": 7}, "no model of checkpoint 7 of Pole; it has those of the steps"),
        ("run/summary.json", {}, "is not a model that can be run"),
    ],
)
def test_what_is_no_policy_is_refused(trained: rollcast.Run, source: str, options: Any, said: str) -> None:
    """The error is one line, which names what there is."""
    with pytest.raises(rollcast.RollcastError, match=said) as caught:
        rollcast.load_policy(trained.folder.parent / source, **options)
    assert "\n" not in str(caught.value)


def test_an_evaluation_plays_whole_episodes(trained: rollcast.Run) -> None:
    """Each counts once; the same seeds give the same returns; an environment may be a function of the caller's."""
    policy = rollcast.load_policy(trained.folder)
    result = rollcast.evaluate(policy, "CartPole-v1", 10, num_envs=4, seed=5)
    assert result.returns.tolist() == result.lengths.tolist()
    assert len(result.returns) == 10
    assert result.interval[0] <= result.mean <= result.interval[1]
    again = rollcast.evaluate(policy, lambda: gymnasium.make("CartPole-v1"), 10, num_envs=4, seed=5)
    assert again.returns.tolist() == result.returns.tolist()
    with pytest.raises(rollcast.RollcastError, match="it is for another environment"):
        rollcast.evaluate(policy, "Pendulum-v1", 1)


def test_a_live_run_is_watched_and_steered(tmp_path: Path) -> None:
    """Its updates come one after the other; it pauses, goes on and saves; its newest policy acts while it trains."""
    with rollcast.train("CartPole-v1", settings(), wait=False, results_dir=tmp_path, run_id="live") as live:
        versions = []
        for state in live:
            versions.append([each.version for each in state.behaviors])
            if any(version >= 2 for found in versions for version in found):
                break
        assert versions == sorted(versions)
        live.pause()
        assert live.state.state.value == "paused"
        live.resume()
        assert live.save().is_file()
        assert live.latest_policy().act(np.zeros(4, np.float32)) in {0, 1}
        with pytest.raises(TimeoutError, match="live has not ended"):
            live.wait(0.0)
        assert live.is_running
        assert live.page.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("env", "options", "code", "said"),
    [
        ("NoSuch-v1", {}, 11, "Environment `NoSuch` doesn't exist"),
        ("CartPole-v1", {"learning_rat": 1e-3}, 11, "unknown key 'learning_rat'; did you mean 'learning_rate'"),
        ("CartPole-v1", {"max_steps": "many"}, 11, "max_steps"),
        ("CartPole-v1", {"actors": 0}, 10, "--actors"),
    ],
)
def test_errors_are_those_of_the_command(tmp_path: Path, env: str, options: Any, code: int, said: str) -> None:
    """They have its message and its exit code."""
    with pytest.raises(rollcast.RollcastError, match=said) as caught:
        rollcast.train(env, results_dir=tmp_path, **options)
    assert caught.value.exit_code == code


def test_a_run_that_exists_is_not_replaced(trained: rollcast.Run) -> None:
    """Starting another run in its folder needs `force`, or `resume`."""
    with pytest.raises(rollcast.RollcastError) as caught:
        rollcast.train("CartPole-v1", settings(), results_dir=trained.folder.parent, run_id="run")
    assert caught.value.exit_code == ExitCode.RUN_FOLDER_EXISTS


@pytest.mark.parametrize("kill", [False, True])
def test_a_run_ends_with_its_program(tmp_path: Path, kill: bool) -> None:
    """Ctrl-C stops it, saves, and is raised; a program that is killed leaves no run behind."""
    program = PROGRAM.format(settings=settings(), folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "trains\n"
            process.send_signal(signal.SIGKILL if kill else signal.SIGINT)
            said = process.stdout.read()
        finally:
            process.kill()
    folder = tmp_path / "run"
    if not kill:
        assert said.splitlines()[-1] == "interrupted False signal"
    wait_until(lambda: not FolderLock.is_held(folder), "the learner has ended")
    assert (folder / "run_state.pt").is_file()


def test_the_lines_of_the_page_run(tmp_path: Path) -> None:
    """They are one program, which trains, steers, acts, evaluates and serves."""
    assert "unknown key 'learning_rat'" in run_page("deploy/examples/LIBRARY.md", tmp_path)


class Walk(gymnasium.Env[Any, Any]):
    """Ends after some steps; the next one fails if it is to."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 10, fails_at: int | None = None) -> None:
        self._length, self._fails_at, self._steps, self._all = length, fails_at, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        """Pays the action."""
        self._steps += 1
        self._all += 1
        if self._fails_at is not None and self._all >= self._fails_at:
            raise ValueError(f"no step {self._all}")
        return np.zeros(2, np.float32), float(action), self._steps == self._length, False, {}


def test_a_callable_of_this_process_is_stepped_here(tmp_path: Path) -> None:
    """A lambda trains with every kind of argument, and leaves signals, log and threads of the process as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    made = []

    def walk(**options: Any) -> Walk:
        made.append(options)
        return Walk(**options)

    run = rollcast.train(
        partial(walk),
        settings(),
        max_steps=2000,
        results_dir=tmp_path,
        num_envs=3,
        env_kwargs={"length": 5},
    )
    assert run.summary["stop_reason"] == "max_steps"
    assert made == [{"length": 5}] * 4  # one to look at
    assert np.nanmean(run.history()["Environment/Episode Length"]) == 5
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rollcast-actor")]
    assert handlers == {number: signal.getsignal(number) for number in handlers}


def test_a_callable_of_a_module_has_processes(tmp_path: Path) -> None:
    """Actors import it by its name; there may be several."""
    (tmp_path / "corridors.py").write_text(
        "from tests.e2e.test_library import Walk\n\n\ndef walk(**options):\n    return Walk(**options)\n"
    )
    program = (
        "import rollcast, corridors\n"
        "if __name__ == '__main__':\n"
        f"    run = rollcast.train(corridors.walk, {settings()!r}, max_steps=1000, actors=2, run_id='run')\n"
        "    print(run.summary['stop_reason'])\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "max_steps\n"
    log = (tmp_path / "results" / "run" / "logs" / "learner.jsonl").read_text()
    assert "local-1" in log
    assert "local-2" in log


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        (partial(Walk, fails_at=3), {}, "no step 3"),
        (partial(object), {}, "gymnasium.Env"),
        (partial(Walk), {"actors": 2}, "one thread of this process"),
        (partial(Walk), {"num_envs": 0}, "--num-envs 0"),
    ],
)
def test_a_callable_that_fails_ends_the_run(tmp_path: Path, env: Any, options: Any, said: str) -> None:
    """The error is that of the actor, and no process is left."""
    with pytest.raises(rollcast.RollcastError, match=said):
        rollcast.train(env, settings(), results_dir=tmp_path, run_id="run", **options)
    assert not FolderLock.is_held(tmp_path / "run")


def test_an_actor_of_this_process_serves_a_learner(tmp_path: Path) -> None:
    """It joins like one of another machine, and ends when it is stopped."""
    with rollcast.serve(settings(), results_dir=tmp_path, run_id="run") as run:
        with rollcast.act(partial(Walk), run.address, wait=False, num_envs=2, name="here") as actor:
            for state in run:
                if state.behaviors and state.behaviors[0].version:
                    break
            assert actor.is_running
            with pytest.raises(TimeoutError):
                actor.wait(0.0)
        assert not actor.is_running
        actor = rollcast.act(Walk, run.address, wait=False, name="again")
        wait_until(lambda: run.state.actors == 1, "the actor has joined")
        assert actor.is_running  # it would wait for a learner that starts again
    actor.stop()
    with pytest.raises(rollcast.RollcastError, match="--learner"):
        rollcast.act(Walk, "nowhere")


def test_a_run_by_python_equals_one_by_commands(tmp_path: Path) -> None:
    """In lock-step, with one seed, no bit differs, whether a process or a thread of the program steps the environments."""
    document = settings(max_steps=1024)
    document["env_settings"] = {"seed": 5}
    document["rollcast"]["lockstep"] = {"actors": 1, "quota_steps": 64}
    options: dict[str, Any] = {"results_dir": tmp_path / "results", "num_envs": 3}
    rollcast.train("CartPole-v1", document, run_id="process", **options)
    rollcast.train(lambda: gymnasium.make("CartPole-v1"), document, run_id="thread", **options)
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    with processes_in(tmp_path) as processes:
        learner = processes.learner(path, run="commands")
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "3")
        assert (learner.wait(), actor.wait()) == (0, 0), learner.said()
    first, *others = (
        torch.load(tmp_path / "results" / run / "Pole" / "checkpoint.pt", weights_only=True)["state"]
        for run in ("commands", "process", "thread")
    )
    assert first["steps_trained"] >= 1024
    assert [differences(first, other) for other in others] == [[], []]


def test_a_finished_run_is_resumed_to_its_end(trained: rollcast.Run) -> None:
    """There is nothing to train, and its results are there."""
    again = rollcast.train(
        "CartPole-v1", settings(), max_steps=2000, results_dir=trained.folder.parent, run_id="run", resume=True, seed=3
    )
    assert (again.folder, again.summary) == (trained.folder, trained.summary)


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell of the example runs in a kernel."""
    for name in ("ROLLCAST_ADDRESS", "ROLLCAST_HTTP_ADDRESS"):
        monkeypatch.setenv(name, "127.0.0.1:0")
    notebook = nbformat.reads(text_of("deploy/examples/notebook.ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    assert "mean return" in printed


@pytest.mark.nightly
def test_an_interrupt_in_a_notebook_stops_the_run(tmp_path: Path) -> None:
    """It saves; the kernel goes on, and starts the next run."""
    cells = (
        "import rollcast, signal\nfrom functools import partial\nfrom tests.e2e.test_library import Walk, settings\nhandler = signal.getsignal(signal.SIGINT)",
        f"run = rollcast.train(partial(Walk), settings(), wait=False, results_dir={str(tmp_path)!r}, run_id='run')",
        "next(iter(run))\nprint('trains')\nrun.wait()",
        "print(run.is_running, run.summary['stop_reason'], signal.getsignal(signal.SIGINT) is handler)",
    )
    manager, client = jupyter_client.manager.start_new_kernel(cwd=str(ROOT))
    said: list[str] = []

    def take(message: Any) -> None:
        content = message["content"]
        said.append(content.get("text", content.get("ename", "")))
        if content.get("text") == "trains\n":
            manager.interrupt_kernel()

    try:
        for cell in cells:
            client.execute_interactive(cell, timeout=SECONDS, output_hook=take)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [each for each in said if each] == ["trains\n", "KeyboardInterrupt", "False signal True\n"]
    assert (tmp_path / "run" / "run_state.pt").is_file()
