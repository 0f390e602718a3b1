"""Runs the commands of the first page and of the examples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.printed import Reader
from tests.documents import ROOT, blocks, commands, section
from tests.e2e.processes import Processes, processes_in
from tests.ports import reserve_ports
from tests.tools.players.build import make_build

pytestmark = pytest.mark.nightly

FIRST_PAGE, INDEX = "README.md", "deploy/examples/README.md"
EXAMPLES = (ROOT / INDEX).parent
IGNORED = shutil.ignore_patterns("results", "__pycache__", "*.egg-info", "build", "rollcast.schema.json")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes in the test's folder, which end with the test."""
    with processes_in(tmp_path, tmp_path) as started:
        yield started


def reader_of(processes: Processes, folder: str = "") -> Reader:
    """Returns a reader in a copy of an example's folder."""
    if folder:
        shutil.copytree(EXAMPLES / folder, processes.folder, dirs_exist_ok=True, ignore=IGNORED)
    return Reader(processes)


def reaches(reader: Reader, target: float) -> None:
    """Waits for the end of the newest run, and checks that its target ended it."""
    reader.wait()
    summary = reader.summary()
    assert (summary["stop_reason"], summary["mean_return_100"] >= target) == ("target_return", True)


def test_the_one_command_of_the_first_page(processes: Processes) -> None:
    """It reaches a target by itself."""
    reader = reader_of(processes)
    train, *_ = commands(section(FIRST_PAGE, "Train in one command"))
    reader.types([train], ("--target-return", "100"))
    summary = json.loads((processes.folder / "results" / "cartpole" / "summary.json").read_text())
    assert (summary["stop_reason"], summary["mean_return_100"] >= 100) == ("target_return", True)


def test_the_two_terminals_of_the_first_page(processes: Processes) -> None:
    """A run is watched, interrupted, resumed until it reaches its target, and evaluated."""
    reader = reader_of(processes)
    _, init, serve, actor, status, page, evaluate = commands(section(FIRST_PAGE, "Train in one command"))
    # It learns only after it was resumed: otherwise a fast machine reaches the target before that.
    behavior = "behaviors.CartPole."
    endless = ("--set", f"{behavior}max_steps=1e8", "--set", f"{behavior}hyperparameters.learning_rate=1e-9")
    reader.types([init, serve, actor], endless)
    learner = reader.learners[-1]
    learner.wait_for_version("CartPole", 2)
    shown, link = (child.out() for child in reader.types([status, page]))
    assert "CartPole" in shown
    assert "http://" in link
    reader.interrupt()
    reader.types([[*serve, "--resume"], actor], ("--target-return", "100"))
    reaches(reader, 100)
    (measured,) = reader.types([[*evaluate, "--episodes", "5"]])
    assert "CartPole: 5 episodes" in measured.out()


def test_the_own_environment_of_the_first_page(processes: Processes) -> None:
    """The environment and the run file train as printed."""
    text = section(FIRST_PAGE, "Your own environment")
    for name, language in (("corridor.py", "python"), ("corridor.yaml", "yaml")):
        (printed,) = blocks(text, language)
        (processes.folder / name).write_text(printed, encoding="utf-8")
    reader = reader_of(processes)
    reader.types(commands(text))
    summary = json.loads((processes.folder / "results" / "corridor" / "summary.json").read_text())
    assert (summary["stop_reason"], summary["mean_return_100"] >= -1.1) == ("target_return", True)


def test_several_machines_on_the_first_page(processes: Processes) -> None:
    """A learner and an actor on different addresses train."""
    reader = reader_of(processes)
    serve, actor, *_ = commands(section(FIRST_PAGE, "Several machines, and a service"))
    reader.types([["rollcast", "init", "cartpole"]])
    (processes.folder / "cartpole.yaml").rename(processes.folder / serve[2])
    reader.types([[*serve, "--run-id", "RUN"], actor], ("--target-return", "60"))
    reaches(reader, 60)


@pytest.mark.parametrize("lines", [(1,), (2,), (4, 3)], ids=["before", "players", "gateway"])
def test_the_unity_commands_of_the_first_page(lines: tuple[int, ...], processes: Processes) -> None:
    """Learner and players train in one command, and so do a learner and a gateway in two."""
    shutil.copy(EXAMPLES / "curriculum" / "curriculum.yaml", processes.folder / "run.yaml")
    make_build(processes.folder)
    printed = commands(section(FIRST_PAGE, "From ML-Agents to Rollcast"))
    assert printed[0] == ["mlagents-learn", *printed[1][2:]]
    few = ["--num-envs", "2", "--base-port", str(reserve_ports(2))]
    typed = [words if "serve" in words else [*words, *few] for words in map(printed.__getitem__, lines)]
    reader = reader_of(processes)
    reader.types(typed, ("--target-return", "40"))
    reader.wait()
    summary = json.loads((processes.folder / "results" / "walker" / "summary.json").read_text())
    assert (summary["stop_reason"], summary["mean_return_100"] >= 40) == ("target_return", True)


@pytest.mark.parametrize(
    ("heading", "folder", "target"),
    [("Pixels", "pixels", -0.3), ("Memory", "memory", 60.0), ("Several agents", "", -24.0)],
)
def test_an_example_reaches_a_target(heading: str, folder: str, target: float, processes: Processes) -> None:
    """The run ends at a target that neither chance nor the example without its feature reaches."""
    reader = reader_of(processes, folder)
    reader.types(commands(section(INDEX, heading)), (f"--target-return={target}",))
    reaches(reader, target)


def test_several_machines_take_part(processes: Processes) -> None:
    """Both actors add steps to one policy, which learns."""
    reader = reader_of(processes)
    reader.types(commands(section(INDEX, "Several machines")), ("--set", "rollcast.target_return=null"))
    learner = reader.learners[-1]

    def both_add_steps() -> bool:
        return all(any(row.acked_steps for row in learner.actor(name).books) for name in ("first", "second"))

    learner.wait_for(both_add_steps, "steps of both actors")
    learner.wait_for(lambda: learner.behavior("CartPole").mean_return_100 > 60, "a return that chance does not reach")
    reader.interrupt()


def test_demonstrations_suffice(processes: Processes) -> None:
    """A clone of the expert plays far better than chance without rewards."""
    *training, evaluate = commands(section(INDEX, "Demonstrations"))
    reader = reader_of(processes)
    reader.types(training, ("--target-return", "150"), ("--set", "behaviors.CartPole.max_steps=10000"))
    (measured,) = reader.types([[*evaluate, "--episodes", "10", "--json"]])
    (found,) = json.loads(measured.out())["behaviors"]
    assert found["returns"]["mean"] > 100


def test_a_curriculum_reaches_its_last_lesson(processes: Processes) -> None:
    """The player gets the value of each lesson in turn."""
    reader = reader_of(processes, "curriculum")
    events = processes.folder / "events"
    make_build(processes.folder, "--events", str(events))
    (command,) = commands(section(INDEX, "Curriculum"))
    reader.types([[*command, "--base-port", str(reserve_ports(1))]])
    told = [json.loads(line) for line in events.read_text().splitlines()]
    parameters = [line for event in told if event["event"] == "side_channel" for line in event["told"]]
    wind = [line.get("value", "drawn") for line in parameters if line.get("parameter") == "wind"]
    assert wind == [0.0, 0.5, "drawn"]
    summary = json.loads((processes.folder / "results" / "curriculum" / "summary.json").read_text())
    assert summary["stop_reason"] == "target_return"
