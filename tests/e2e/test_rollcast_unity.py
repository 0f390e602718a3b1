"""Tests `rollcast unity` with a learner, a gateway and scripted players."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from rollcast.auth import Role
from rollcast.extras import install

from actor_client.unity.dropin.exits import ExitCode
from learner.shared.exits import ExitCode as LearnerCode
from tests.e2e.preloaded import children_of
from tests.e2e.processes import DEAD_PROXIES, Child, Processes, wait_until
from tests.learner.service.identity.certificates import Folder
from tests.ports import reserve_ports
from tests.tools.players.build import make_build

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
    """A folder with a run file and a build, and free ports for two players of each of two gateways."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.processes = processes
        self.results = folder / "results"
        self.build = make_build(folder / "game")
        self.run_file = folder / "run.yaml"
        self.write_run(10**9)
        self.port = reserve_ports(4)

    def write_run(self, max_steps: int) -> None:
        """Writes the run file."""
        self.run_file.write_text(RUN.replace("MAX_STEPS", str(max_steps)))

    def start(
        self,
        *arguments: str,
        name: str = "unity",
        usual_address: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Starts the command as a user would, run id `x`, away from the usual port: any actor here may look there."""
        own = ["--run-id=x", f"--results-dir={self.results}", f"--base-port={self.port}", f"--env={self.build}"]
        if not usual_address:
            own.append("--address=127.0.0.1:0")
        module = ["-m", "actor_client.unity.dropin"]
        line = [*module, str(self.run_file), *own, *arguments]
        return self.processes.python(name, *line, environment=environment)

    def trains(self, child: Child, lines: int = 2) -> None:
        """Waits until so many summaries were printed."""

        def printed() -> bool:
            assert child.is_running, child.said()
            return len(LINE.findall(child.out())) >= lines

        wait_until(printed, "summaries", said=child.said)

    def summary(self) -> dict[str, object]:
        """Returns what the run resulted in."""
        content: dict[str, object] = json.loads((self.results / "x" / "summary.json").read_text())
        return content


@pytest.fixture
def bench(processes: Processes, tmp_path: Path) -> Iterator[Bench]:
    """Yields what the command is started with."""
    made = Bench(processes, tmp_path)
    yield made
    assert _players(made.build) == []


def test_a_run_from_start_to_end(bench: Bench) -> None:
    """A run trains with both players, prints ML-Agents' lines, and leaves its files and players' logs; a proxy is no matter."""
    bench.write_run(3500)
    child = bench.start("--http-address=127.0.0.1:0", "--metrics-address=off", "--train", environment=DEAD_PROXIES)
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
    # The last statistics may be those of the summary at 3,000, which a turn writes that takes in the last steps as well.
    saved = [int(path.stem.partition("-")[2]) for path in (folder / "CartPole").glob("CartPole-*.pt")]
    assert max(saved) >= 3500, "a step counts once it was taken in, if no update follows either"


def test_it_trains_over_tls(bench: Bench, tmp_path: Path) -> None:
    """With certificates and a token of an actor, the gateway connects over TLS; without the token it ends and says why."""
    folder, joined = Folder.make(tmp_path / "certs", lab=Role.ACTOR), tmp_path / "joined"
    joined.mkdir()
    for name, source in (("ca.pem", folder.ca), ("token", folder.path / "lab.token")):
        (joined / name).write_bytes(source.read_bytes())
        (joined / name).chmod(0o600)
    bench.write_run(1500)
    tls = ["--http-address=127.0.0.1:0", "--metrics-address=off", f"--certs={folder.path}"]
    child = bench.start(*tls, f"--actor-certs={joined}")
    assert child.wait() == ExitCode.OK, child.said()
    assert bench.summary()["stop_reason"] == "max_steps"
    (joined / "token").unlink()
    refused = bench.start(*tls, f"--actor-certs={joined}", "--force", name="refused")
    assert refused.wait() != ExitCode.OK
    assert "the learner requires a token" in refused.err()


def test_ctrl_c_saves_and_resume_goes_on(bench: Bench) -> None:
    """Ctrl-C ends players and learner with checkpoint and model, and --resume continues."""
    first = bench.start("--http-address=127.0.0.1:0", name="first")
    bench.trains(first)
    first.signal(signal.SIGINT)
    assert first.wait() == ExitCode.OK, first.said()
    before = bench.summary()
    assert before["stop_reason"] == "signal"
    assert first.err().count("[INFO] stopping: ") == 1
    assert (bench.results / "x" / "CartPole.onnx").stat().st_size > 0
    again = bench.start("--http-address=127.0.0.1:0", name="again")
    assert again.fails_with(LearnerCode.RUN_FOLDER_EXISTS).startswith("error: ")
    assert "--resume" in again.err()
    assert again.out() == ""
    resumed = bench.start("--resume", "--http-address=127.0.0.1:0", name="resumed")
    bench.trains(resumed)  # the first summary may come with the next steps, before an update
    resumed.signal(signal.SIGTERM)
    assert resumed.wait() == ExitCode.OK, resumed.said()
    after = bench.summary()
    assert isinstance(before["env_steps_trained"], int)
    assert isinstance(after["env_steps_trained"], int)
    assert after["env_steps_trained"] > before["env_steps_trained"]


def test_a_learner_that_is_killed_early(bench: Bench) -> None:
    """If the learner is killed before its first checkpoint, the last line's advice works."""
    first = bench.start("--http-address=127.0.0.1:0", "--set", "rollcast.checkpoint_seconds=600", name="first")
    wait_until(lambda: "[INFO] run x in " in first.err(), "a learner", said=first.said)
    os.kill(_learner_of(first), signal.SIGKILL)
    line = first.fails_with(ExitCode.LEARNER_KILLED)
    assert "--resume=auto" in line
    assert not (bench.results / "x" / "run_state.pt").exists()
    bench.write_run(1000)
    again = bench.start("--resume=auto", "--http-address=127.0.0.1:0", name="again")
    assert again.wait() == ExitCode.OK, again.said()


@pytest.mark.parametrize("log_format", ["mlagents", "json"])
def test_players_that_fail_have_the_last_word(bench: Bench, log_format: str) -> None:
    """The reason of failed players is the last line, in JSON if the others are."""
    options = ["--max-lifetime-restarts=0", f"--log-format={log_format}", "--http-address=127.0.0.1:0"]
    child = bench.start(*options, "--env-args", "--agents", "4", "--fault", "exit", "--fault-at", "40")
    line = child.fails_with(ExitCode.ENVIRONMENT_FAILED)
    assert "learner_unreachable" not in child.err()
    if log_format == "json":
        lines = [json.loads(each) for each in child.err().splitlines()]
        started = [each["event"] for each in lines if each["event"] == "run_started"]
        assert started == ["run_started"]
        assert (lines[-1]["event"], lines[-1]["exit_code"]) == ("run_ended", ExitCode.ENVIRONMENT_FAILED)
        line = lines[-1]["error"]
        assert [each["event"] for each in lines].count("actor_ended") == 0
    else:
        assert line.startswith("error: ")
        assert child.err().count("error: ") == 1, "one side says it, with one exit code"
        assert "ended: it was asked to stop" in child.out()
    assert "player" in line
    assert child.err().count("the gateway of the players has failed") == 1


def test_a_behavior_that_the_run_file_lacks(bench: Bench) -> None:
    """For an unknown behavior, the last line says what to change in the run file."""
    bench.run_file.write_text(bench.run_file.read_text().replace("CartPole:", "Walker:"))
    child = bench.start("--http-address=127.0.0.1:0", "--num-envs=2")
    line = child.fails_with(ExitCode.GATEWAY_FAILED)
    assert "CartPole" in line
    assert "Behavior Name" in line
    assert line.count("add ") == 2, "there is one next step, with two ways"
    assert child.err().count("error: ") == 1, "once for both players"
    assert "--behavior" not in line


def test_what_the_gateway_refuses_ends_the_command(bench: Bench) -> None:
    """What only the gateway can refuse ends both sides, with its reason as the last line."""
    child = bench.start("--side-channel=no_such:thing", "--http-address=127.0.0.1:0")
    assert "no_such:thing" in child.fails_with(ExitCode.USAGE)


def test_a_signal_while_it_starts_is_one_line(bench: Bench) -> None:
    """One signal during the start ends the command with one line."""
    content = bench.run_file.read_bytes()
    bench.run_file.unlink()
    os.mkfifo(bench.run_file)  # the plan cannot be computed before it is written
    child = bench.start("--http-address=127.0.0.1:0")
    wait_until(lambda: _computes_its_plan(child), "its handlers", said=child.said)
    child.signal(signal.SIGINT)
    with bench.run_file.open("wb") as pipe:
        bench.run_file.unlink()
        bench.run_file.write_bytes(content)  # for those who read it again
        pipe.write(content)
    assert child.fails_with(ExitCode.INTERRUPTED).startswith("error: stopped before the run had started")
    assert not (bench.results / "x" / "summary.json").exists()


@pytest.mark.nightly
def test_two_runs_side_by_side(bench: Bench) -> None:
    """A second run needs only another --base-port and --run-id."""
    first = bench.start(name="first", usual_address=True)
    second = bench.start("--run-id=y", f"--base-port={bench.port + 2}", name="second", usual_address=True)
    for child, run in ((first, "x"), (second, "y")):
        wait_until(lambda child=child, run=run: _connected_to(child, run), "its own learner", said=child.said)  # type: ignore[misc]
    found = [json.loads((bench.results / run / "address.json").read_text())["address"] for run in ("x", "y")]
    assert len(set(found)) == 2
    for child in (first, second):
        child.signal(signal.SIGINT)
        assert child.wait() == ExitCode.OK, child.said()


def test_another_gateway_joins(bench: Bench) -> None:
    """Another gateway joins by the printed command."""
    first = bench.start("--address=0.0.0.0:0", "--insecure", "--set", "rollcast.http=false")
    bench.trains(first, lines=1)
    joining = re.search(r"rollcast act (unity .*)", first.err())
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
        (["--resume"], LearnerCode.NOTHING_TO_RESUME, "no run 'x'"),
        (["--resume-it"], ExitCode.USAGE, "--help"),
        (["--address=127.0.0.1"], LearnerCode.RUN_FILE, "host:port"),
    ],
)
def test_what_cannot_start_is_one_line(bench: Bench, arguments: list[str], code: int, words: str) -> None:
    """A command that cannot start prints one line and writes nothing."""
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
    """The taken port is named, and no learner is started, so that the next start needs no flag."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", bench.port + 1))
        listener.listen()
        line = bench.start().fails_with(ExitCode.PORT_IN_USE)
    assert str(bench.port + 1) in line
    assert "--base-port" in line
    assert not bench.results.exists()


def test_no_part_may_be_missing(bench: Bench) -> None:
    """A missing extra is one line that says what to install."""
    program = (
        "import sys; sys.modules['torch'] = None\nfrom actor_client.unity.dropin.cli import main\n"
        f"sys.exit(main([{str(bench.run_file)!r}]))"
    )
    line = bench.processes.python("missing", "-c", program).fails_with(ExitCode.MISSING_EXTRA)
    assert line == f"error: rollcast unity needs torch: {install('learner,actor,unity')}"


def test_without_a_build_it_waits_for_the_editor(bench: Bench) -> None:
    """Without a build the command listens for the editor while the learner starts, and says so."""
    child = bench.processes.python(
        "editor", "-m", "actor_client.unity.dropin", "--run-id=x", f"--results-dir={bench.results}"
    )
    wait_until(lambda: "press Play" in child.err(), "an invitation", said=child.said)
    assert "5004" in child.err()
    with socket.create_connection(("127.0.0.1", 5004), timeout=5):
        child.signal(signal.SIGINT)
    assert child.wait() in {ExitCode.OK, ExitCode.INTERRUPTED}, child.said()


def _connected_to(child: Child, run: str) -> bool:
    """Returns whether the gateway of a command takes part in a run."""
    assert child.is_running, child.said()
    return any(" connected " in line and f"run_id={run} " in line for line in child.err().splitlines())


def _learner_of(child: Child) -> int:
    """Returns the number of the learner's process."""
    (found,) = (
        pid for pid in children_of(child.pid) if b"\0learner\0serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return found


def _computes_its_plan(child: Child) -> bool:
    """Returns whether the process that computes the plan runs, which begins after the handlers are set."""
    return bool(children_of(child.pid))


def _players(build: Path) -> list[str]:
    """Returns the command lines of players of a build that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "tests.tools.players" in words and str(build.parent) in words:
            found.append(words)
    return found
