"""Tests the example of code beside a run file: a trainer, a reward signal, a body and a policy without a package."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from learner.shared.exits import ExitCode
from tests.documents import ROOT, blocks, commands, section
from tests.e2e.processes import Processes, processes_in
from tests.plugins.page import PAGE

FOLDER = ROOT / "deploy" / "examples" / "own"
SIGNAL = "mine:Upright"


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import mine, rollcast

class Here:
    pass

blocks = {"CartPole": {"reward_signals": {"extrinsic": {}, mine.Upright: {"gamma": 0.9}}}}
quick = {"batch_size": 64, "buffer_size": 256, "learning_rate_schedule": "constant"}
try:
    rollcast.train("CartPole-v1", trainer=Here)
except rollcast.RollcastError as error:
    print(error.exit_code, error)
run = rollcast.train(
    "CartPole-v1", {"behaviors": blocks}, trainer=mine.Cautious, body=mine.Residual, hyperparameters=quick,
    max_steps=600, run_id="own", address="127.0.0.1:0", http_address="127.0.0.1:0",
)
print(run.summary["stop_reason"])
"""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes beside a folder with the example, which end with the test."""
    shutil.copytree(FOLDER, tmp_path / "own", ignore=shutil.ignore_patterns("results", "__pycache__"))
    (tmp_path / "elsewhere").mkdir()
    with processes_in(tmp_path, tmp_path / "elsewhere") as started:
        yield started


def run_file(processes: Processes, **rollcast: Any) -> Path:
    """Changes the block `rollcast` of the example, and returns its file."""
    path = processes.folder / "own" / "own.yaml"
    document = yaml.safe_load(path.read_text())
    document["rollcast"] = {"torch_threads": 1, **document["rollcast"], **rollcast}
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_page_has_the_run_file() -> None:
    """The page prints what the folder holds, and its list of examples the page's command; `test_page.py` compares the Python."""
    assert (FOLDER / "own.yaml").read_text() in blocks(PAGE, "yaml")
    (listed,) = commands(section("deploy/examples/README.md", "Own code"))
    assert listed in commands(PAGE)


@pytest.mark.slow
def test_code_beside_the_run_file_trains_and_is_recorded(processes: Processes) -> None:
    """The page's commands work, also from another folder; a run says what code it ran, and an evaluation finds it again."""
    train, evaluate = (words for words in commands(PAGE) if words[1] in {"train", "evaluate"})
    train[train.index("own.yaml")] = str(run_file(processes))
    local = ("--address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--seed", "3")
    child = processes.python("train", "-m", *train, *local)
    assert child.wait() == ExitCode.OK, child.said()
    folder = processes.folder / "elsewhere" / "results" / "own"
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["stop_reason"], summary["mean_return_100"] >= 100) == ("target_return", True)
    header = (folder / "CartPole" / "stats.csv").read_text().splitlines()
    assert any("Losses/Divergence" in line for line in header)
    assert any(f"Policy/{SIGNAL.capitalize()} Reward" in line for line in header)
    file = processes.folder / "own" / "mine.py"
    named = ["mine:Cautious", SIGNAL, "mine:Residual", "mine:Deeper"]
    code = json.loads((folder / "versions.json").read_text())["code"]
    assert [(each["name"], each["file"]) for each in code] == [(name, str(file)) for name in named]
    assert {each["sha256"] for each in code} == {hashlib.sha256(file.read_bytes()).hexdigest()}
    started = json.loads((folder / "events.jsonl").read_text().splitlines()[0])
    assert started["code"] == code
    words = ["-m", *evaluate, "--results-dir", str(folder.parent), "--episodes", "3"]
    missing = processes.python("missing", *words)
    assert "No module named 'mine'" in missing.fails_with(ExitCode.RUN_FILE)
    found = processes.python("evaluate", *words, cwd=processes.folder / "own")
    assert found.wait() == ExitCode.OK, found.said()
    assert "CartPole: 3 episodes" in found.out()


@pytest.mark.slow
@pytest.mark.parametrize("rollcast", [{"trainers": 2}, {"trainer_process": False}])
def test_it_trains_in_ranks_and_threads_and_resumes(processes: Processes, rollcast: dict[str, Any]) -> None:
    """Wherever the trainers are, they find the code; a run continues with the state of trainer and signal."""
    path, version = run_file(processes, target_return=None, **rollcast), 0
    for flags in ((), ("--resume",)):
        learner = processes.learner(path, "--http-address", "127.0.0.1:0", *flags)
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
        version = learner.wait_for_version("CartPole", version + 2, actor).version
        learner.signal(signal.SIGTERM)
        assert learner.wait() == ExitCode.OK, learner.said()
        actor.signal(signal.SIGTERM)
        actor.wait()


@pytest.mark.slow
def test_a_program_names_its_classes_by_themselves(processes: Processes) -> None:
    """A class of a module that the program finds is found by the run, too; one of the program itself is refused in one line."""
    child = processes.python("program", "-c", PROGRAM, str(processes.folder / "own"))
    assert child.wait() == 0, child.said()
    refused, reason = child.out().splitlines()
    assert refused.startswith("10 Here cannot be found by the processes of a run, because it is of a main program")
    assert reason == "max_steps"
    settings = yaml.safe_load((processes.folder / "elsewhere" / "results" / "own" / "configuration.yaml").read_text())
    settings = settings["behaviors"]["CartPole"]
    assert (settings["trainer_type"], settings["network_settings"]["body"]) == ("mine:Cautious", "mine:Residual")
    assert settings["reward_signals"][SIGNAL]["gamma"] == 0.9
    assert settings["hyperparameters"]["learning_rate_schedule"] == "constant"
