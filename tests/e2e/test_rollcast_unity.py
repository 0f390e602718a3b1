"""`rollcast-unity` from its start to its end: a learner, a gateway, and scripted players in the place of a Unity build."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from actor_client.unity.dropin.exits import ExitCode
from learner.exits import ExitCode as LearnerCode
from tests.e2e.processes import Child, Processes, wait_until
from tests.players.build import make_build

RUN = """
behaviors:
  CartPole:
    trainer_type: ppo
    hyperparameters: {batch_size: 128, buffer_size: 512, learning_rate: 1e-3, beta: 0.0, num_epoch: 3}
    network_settings: {hidden_units: 32, num_layers: 1}
    time_horizon: 32
    max_steps: MAX_STEPS
    summary_freq: 1000
env_settings:
  num_envs: 2
  env_args: [--agents, "4"]
"""
LINE = re.compile(
    r"\[INFO\] CartPole\. Step: (\d+)\. Time Elapsed: \d+\.\d{3} s\. "
    r"Mean Reward: \d+\.\d{3}\. Std of Reward: \d+\.\d{3}\. (Not )?Training\."
)


class Bench:
    """A folder with a run file and a build, and free ports for two players each of two gateways."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.processes = processes
        self.results = folder / "results"
        self.build = make_build(folder / "game")
        self.run_file = folder / "run.yaml"
        self.write_run(10**9)
        self.port = _free_ports(4)

    def write_run(self, max_steps: int) -> None:
        """Writes the run file."""
        self.run_file.write_text(RUN.replace("MAX_STEPS", str(max_steps)))

    def start(self, *arguments: str, name: str = "unity") -> Child:
        """Starts the command as a user would, run id `x`."""
        own = ["--run-id=x", f"--results-dir={self.results}", f"--base-port={self.port}", f"--env={self.build}"]
        module = ["-m", "actor_client.unity.dropin"]
        return self.processes.python(name, *module, str(self.run_file), *own, *arguments)

    def trains(self, child: Child, lines: int = 2) -> None:
        """Waits until so many summaries were printed."""

        def printed() -> bool:
            assert child.is_running, child.said()
            return len(LINE.findall(child.out())) >= lines

        wait_until(printed, "summaries", said=child.said)

    def summary(self) -> dict[str, object]:
        """Returns what the run came to."""
        content: dict[str, object] = json.loads((self.results / "x" / "summary.json").read_text())
        return content


@pytest.fixture
def bench(processes: Processes, tmp_path: Path) -> Iterator[Bench]:
    """What the command is started with."""
    made = Bench(processes, tmp_path)
    yield made
    assert _players(made.build) == []


def test_a_run_from_start_to_end(bench: Bench) -> None:
    """It trains with both players of the run file, prints ML-Agents' lines, and leaves its files, players' logs too."""
    bench.write_run(3500)
    child = bench.start("--http-address=127.0.0.1:0", "--metrics-address=off", "--train")
    assert child.wait() == ExitCode.OK, child.said()
    steps = [int(match[1]) for match in LINE.finditer(child.out())]
    assert steps[:3] == [1000, 2000, 3000]
    assert steps == sorted(steps)
    assert "[WARNING] --train has no effect" in child.err()
    folder = bench.results / "x"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert {"CartPole.onnx", "configuration.yaml", "CartPole/checkpoint.pt", "run_logs/training_status.json"} <= names
    assert {"run_logs/Player-0.log", "run_logs/Player-1.log"} <= names
    assert bench.summary()["stop_reason"] == "max_steps"
    with (folder / "CartPole" / "stats.csv").open(newline="") as file:
        last = [int(row["step"]) for row in csv.DictReader(file)][-1]
    assert last >= 3500, "a step counts once it was taken in, if no update follows either"
    assert f"CartPole/CartPole-{last}.onnx" in names


def test_ctrl_c_saves_and_resume_goes_on(bench: Bench) -> None:
    """One Ctrl-C ends players and learner in good order, with checkpoint and model; --resume goes on from there."""
    first = bench.start("--http-address=127.0.0.1:0", name="first")
    bench.trains(first)
    first.signal(signal.SIGINT)
    assert first.wait() == ExitCode.OK, first.said()
    before = bench.summary()
    assert before["stop_reason"] == "signal"
    assert (bench.results / "x" / "CartPole.onnx").stat().st_size > 0
    again = bench.start("--http-address=127.0.0.1:0", name="again")
    assert again.fails_with(LearnerCode.RUN_FOLDER_EXISTS).startswith("error: ")
    assert "--resume" in again.err()
    assert again.out() == ""
    resumed = bench.start("--resume", "--http-address=127.0.0.1:0", name="resumed")
    bench.trains(resumed, lines=1)
    resumed.signal(signal.SIGTERM)
    assert resumed.wait() == ExitCode.OK, resumed.said()
    after = bench.summary()
    assert isinstance(before["env_steps_trained"], int)
    assert isinstance(after["env_steps_trained"], int)
    assert after["env_steps_trained"] > before["env_steps_trained"]


def test_two_runs_side_by_side(bench: Bench) -> None:
    """Another --base-port and --run-id is all that a second one needs: learner and page get ports of their own."""
    first = bench.start(name="first")
    second = bench.start("--run-id=y", f"--base-port={bench.port + 2}", name="second")
    for child, run in ((first, "x"), (second, "y")):
        wait_until(lambda child=child, run=run: _connected_to(child, run), "its own learner", said=child.said)  # type: ignore[misc]
    found = [json.loads((bench.results / run / "address.json").read_text())["address"] for run in ("x", "y")]
    assert len(set(found)) == 2
    for child in (first, second):
        child.signal(signal.SIGINT)
        assert child.wait() == ExitCode.OK, child.said()


def test_another_gateway_joins(bench: Bench) -> None:
    """More players come by the command that is printed, and both gateways take part."""
    first = bench.start("--address=0.0.0.0:0", "--insecure", "--set", "rollcast.http=false")
    bench.trains(first, lines=1)
    joining = re.search(r"rollcast-actor (unity .*)", first.err())
    assert joining is not None
    words = re.sub(r"--learner \S+:", "--learner 127.0.0.1:", joining[1]).split()
    second = bench.processes.python(
        "second", "-m", "actor_client", *words, f"--base-port={bench.port + 2}", f"--log-dir={bench.results}"
    )
    wait_until(lambda: first.err().count("behavior_declared") == 2, "a second gateway", said=second.said)
    bench.trains(first, lines=3)
    first.signal(signal.SIGINT)
    assert first.wait() == ExitCode.OK, first.said()
    second.signal(signal.SIGINT)
    assert second.wait() == 0, second.said()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--env=nowhere/Game"], ExitCode.UNKNOWN_ENVIRONMENT, "nowhere/Game"),
        (["--num-envs=none"], LearnerCode.RUN_FILE, "--num-envs"),
        (["--inference"], LearnerCode.RUN_FILE, "not built yet"),
        (["--resume"], LearnerCode.NOTHING_TO_RESUME, "no run 'x'"),
        (["--resume-it"], ExitCode.USAGE, "--help"),
        (["--address=127.0.0.1"], LearnerCode.RUN_FILE, "host:port"),
    ],
)
def test_what_cannot_start_is_one_line(bench: Bench, arguments: list[str], code: int, words: str) -> None:
    """It names the fault, and nothing was started or written."""
    child = bench.start(*arguments)
    line = child.fails_with(code)
    assert line.startswith("error: ")
    assert not bench.results.exists()
    if code == LearnerCode.RUN_FILE:
        assert words in child.err()
    else:
        assert words in line
        assert len(child.err().splitlines()) == 1


def test_a_port_in_use_is_one_line(bench: Bench) -> None:
    """The port is named, and no learner was started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", bench.port + 1))
        listener.listen()
        line = bench.start().fails_with(ExitCode.PORT_IN_USE)
    assert str(bench.port + 1) in line
    assert "--base-port" in line
    assert not (bench.results / "x" / "run_state.pt").exists()


def test_no_part_may_be_missing(bench: Bench) -> None:
    """One line says what to install."""
    program = (
        "import sys; sys.modules['torch'] = None\nfrom actor_client.unity.dropin.cli import main\n"
        f"sys.exit(main([{str(bench.run_file)!r}]))"
    )
    line = bench.processes.python("missing", "-c", program).fails_with(ExitCode.MISSING_EXTRA)
    assert line == "error: rollcast-unity needs torch: in the checkout, pip install '.[learner,actor,unity]'"


def test_without_a_build_it_waits_for_the_editor(bench: Bench) -> None:
    """It says where, and what to press; the port listens while the learner still starts."""
    child = bench.processes.python(
        "editor", "-m", "actor_client.unity.dropin", "--run-id=x", f"--results-dir={bench.results}"
    )
    wait_until(lambda: "press Play" in child.err(), "an invitation", said=child.said)
    assert "5004" in child.err()
    with socket.create_connection(("127.0.0.1", 5004), timeout=5):
        child.signal(signal.SIGINT)
    assert child.wait() in {ExitCode.OK, ExitCode.INTERRUPTED}, child.said()


def _connected_to(child: Child, run: str) -> bool:
    """Whether the gateway of a command takes part in a run."""
    assert child.is_running, child.said()
    return any(" connected " in line and f"run_id={run} " in line for line in child.err().splitlines())


def _free_ports(number: int) -> int:
    """Returns the first of some neighbouring ports that nobody uses now."""
    for first in range(20000 + os.getpid() % 10000, 60000, number):
        with ExitStack() as stack:
            try:
                for port in range(first, first + number):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def _players(build: Path) -> list[str]:
    """Returns the command lines of players of a build that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "tests.players" in words and str(build.parent) in words:
            found.append(words)
    return found
