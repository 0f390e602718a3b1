"""Tests that wrong input gives one clear line and a documented exit code."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.e2e import toys
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, wait_until
from tests.e2e.runs import small, write_run
from tests.ports import reserve_ports


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Writes a valid run file."""
    return write_run(tmp_path, {"CartPole": small()})


def _refused(learner: Child, code: int) -> str:
    """Waits until a learner has refused to start; returns the one line of its error."""
    line = learner.fails_with(code)
    assert line.startswith("error: ")
    assert learner.err().count("error: ") == 1, learner.said()
    assert learner.out() == ""
    return line


def test_an_unknown_key(processes: Processes, run_file: Path) -> None:
    """An unknown key is reported with its line and the nearest known key."""
    run_file.write_text(run_file.read_text().replace("buffer_size", "bufer_size"))
    line = _refused(processes.learner(run_file), 11)
    assert "hyperparameters.bufer_size" in line
    assert "did you mean 'buffer_size'?" in line
    assert f"{run_file}:" in line


OUT_OF_BOUNDS = (
    "rollcast.torch_threads=100000",
    "rollcast.lease_seconds=1e300",
    "rollcast.lease_seconds=1e-9",
    "rollcast.max_chunk_age_seconds=1e300",
    "behaviors.CartPole.network_settings.num_layers=1e18",
    "engine_settings.width=1e18",
)
NO_NAMES = ("a..b", "x" * 64)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *((("--set", item), (item.partition("=")[0], "than or equal to")) for item in OUT_OF_BOUNDS),
        *((("--insecure", "--address", f"{host}:0"), (host[:50],)) for host in NO_NAMES),
        *((("--insecure", "--http-address", f"{host}:0"), (host[:50],)) for host in NO_NAMES),
        (("--address", "0.0.0.0:0"), ("--insecure",)),
    ],
)
def test_a_setting_that_is_refused(
    processes: Processes, run_file: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """A value out of bounds, a host that is no name, and plain text for other machines end the start with one line."""
    line = _refused(processes.learner(run_file, *arguments), 11)
    assert all(word in line for word in words), line


def test_a_folder_that_holds_a_run(processes: Processes, run_file: Path) -> None:
    """A run is neither overwritten nor resumed without a flag."""
    folder = processes.folder / "results" / "run"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    line = _refused(processes.learner(run_file), 12)
    assert "--resume" in line
    assert "--force" in line
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == ["summary.json"]


def test_nothing_to_resume(processes: Processes, run_file: Path) -> None:
    """--resume without a run is an error that lists existing runs."""
    (processes.folder / "results" / "another").mkdir(parents=True)
    line = _refused(processes.learner(run_file, "--resume"), 13)
    assert "'run'" in line
    assert "another" in line


def test_a_damaged_state(processes: Processes, run_file: Path) -> None:
    """A run state that cannot be read is named and kept, and the run is not restarted."""
    folder = processes.folder / "results" / "run"
    folder.mkdir(parents=True)
    state = folder / "run_state.pt"
    state.write_bytes(b"PK\x03\x04 and then nothing that makes sense")
    line = _refused(processes.learner(run_file, "--resume"), 15)
    assert str(state) in line
    assert "--force" in line
    assert state.exists()


def test_a_port_that_is_taken(processes: Processes, run_file: Path) -> None:
    """A taken port is an error that names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        learner = processes.learner(run_file, port=port)
        assert learner.wait() == 20, learner.said()
    (line,) = learner.err().splitlines()
    assert line.startswith(f"error: cannot listen on 127.0.0.1:{port}")


def test_a_folder_in_use(shared_learner: LearnerProcess, processes: Processes, run_file: Path) -> None:
    """Two learners never write into one run folder."""
    shared_learner.status()  # so it has its folder
    results = ("--results-dir", str(shared_learner.folder.parent), "--resume=auto")
    learner = processes.learner(run_file, *results)
    assert str(shared_learner.folder) in _refused(learner, 12)


def test_a_trainer_that_fails(processes: Processes, run_file: Path) -> None:
    """Repeated failed updates end the learner with 40, a reason and a summary; the actor waits."""
    learner = processes.learner(run_file, "--set", "behaviors.CartPole.hyperparameters.learning_rate=1e30")
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    assert learner.wait() == 40, learner.said()
    (event,) = learner.events("trainer_failed")
    assert "learning_rate" in event["error"]
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["stop_reason"] == "trainer_failed"
    ledger = summary["ledger"]
    assert ledger["dropped"]["not_finite_update"] >= 3 * 256
    assert ledger["received"] == ledger["trained"] + ledger["queued"] + sum(ledger["dropped"].values())
    assert actor.is_running
    (farewell,) = actor.events("learner_drains")
    assert "failed" in farewell["message"], "nobody knows whether it will be back"


def test_rewards_beyond_measure(processes: Processes, run_file: Path) -> None:
    """Rewards whose squares overflow do not affect the run of other actors."""
    learner = processes.learner(run_file)
    bad = processes.actor(learner.address, toys.named("exploding"), "--num-envs", "2", name="bad")
    good = processes.actor(learner.address, "tests.actor_client.envs.toys:Toy", "--num-envs", "2", name="good")
    learner.wait_for(lambda: learner.events("rows_rejected"), "rows are refused", bad)
    learner.wait_for_version("CartPole", learner.behavior("CartPole").version + 3, good)
    refused = learner.events("rows_rejected")[0]
    assert (refused["actor"], refused["reason"]) == ("bad", "not_finite")
    assert "beyond 1e+15" in refused["detail"]
    assert not learner.events("update_not_finite")
    assert good.is_running


def test_a_run_that_nobody_joins(processes: Processes, run_file: Path) -> None:
    """A learner without actors waits, logs this, and ends with 0 when its time is over."""
    learner = processes.learner(run_file, "--max-wall-seconds", "10")
    assert learner.status().state == "RUN_STATE_WAITING"
    assert learner.wait() == 0, learner.said()
    assert learner.events("waiting_for_actors")
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary == {"run_id": "run", "generation": 1, "stop_reason": "max_wall_seconds"}


NOBODY = "127.0.0.1:1"

ENVIRONMENTS = {
    "unknown id": ("NoSuch-v3", "NoSuch"),
    "module that does not import": ("no_such_module:make", "module no_such_module cannot be imported"),
    "callable that is missing": (toys.named("no_such"), f"module {toys.MODULE} has no no_such"),
    "raises when made": (toys.named("raising_when_made"), "OSError: the simulator is not installed"),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_an_environment_that_cannot_be_made(processes: Processes, case: str) -> None:
    """The actor ends with 11 and one line before it connects."""
    env, expected = ENVIRONMENTS[case]
    actor = processes.actor(NOBODY, env, "--log-format", "console")
    assert actor.wait() == 11, actor.said()
    assert (TRACEBACK in actor.err()) == (case == "raises when made"), "the user's code failed"
    line = actor.err().rstrip().rpartition("\n")[2]
    assert line.startswith("error: ")
    assert expected in line
    assert "(exit code 11)" in line


def test_an_environment_that_fails_at_each_step(shared_learner: LearnerProcess, processes: Processes) -> None:
    """After three failures in a row the actor ends with 40; the learner counts discarded steps."""
    arguments = ("--behavior", "Raising", "--log-format", "console")
    actor = processes.actor(shared_learner.address, toys.named("raising_at_steps"), *arguments)
    assert actor.wait() == 40, actor.said()
    line = actor.err().rstrip().rpartition("\n")[2]
    assert "3 failures in a row" in line
    assert "RuntimeError: step 0 fails" in line
    assert shared_learner.behavior("Raising").books.received == 0
    assert shared_learner.events("actor_left")[-1]["reason"] == "environment_failed"


def test_an_environment_that_cannot_be_made_for_a_while(
    shared_learner: LearnerProcess, processes: Processes, tmp_path: Path
) -> None:
    """A simulator that fails and cannot restart twice loses only its open steps."""
    arguments = ("--behavior", "Returning", "--max-env-failures", "5")
    kwargs = json.dumps({"folder": str(_made(tmp_path)), "made_after": 2})
    actor = processes.actor(shared_learner.address, toys.named("returning"), *arguments, "--env-kwargs", kwargs)
    shared_learner.wait_for_version("Returning", 2, actor)
    assert [line["in_row"] for line in actor.events("environment_failed")] == [1]
    assert len(list((tmp_path / "made").iterdir())) == 4


def test_an_environment_that_comes_back_with_masks(
    shared_learner: LearnerProcess, processes: Processes, tmp_path: Path
) -> None:
    """Steps with another form than the first ones end the actor with 40."""
    arguments = ("--behavior", "Returning", "--log-format", "console")
    kwargs = json.dumps({"folder": str(_made(tmp_path)), "made_after": 0, "masked": True})
    actor = processes.actor(shared_learner.address, toys.named("returning"), *arguments, "--env-kwargs", kwargs)
    assert actor.wait() == 40, actor.said()
    last = actor.err().rstrip().rpartition("\n")[2]
    assert "remade with action masks, unlike the first one" in last
    assert shared_learner.behavior("Returning").log_prob_error_max < 1e-4


def _made(folder: Path) -> Path:
    (folder / "made").mkdir()
    return folder / "made"


def test_a_learner_that_does_not_answer(processes: Processes) -> None:
    """With --connect-timeout the actor ends with 20, and names address and next step."""
    arguments = ("--connect-timeout", "1", "--log-format", "console")
    line = processes.actor(NOBODY, "CartPole-v1", *arguments).fails_with(20)
    assert line.startswith(f"error: the learner at {NOBODY} did not answer within 1 s")


def test_a_learner_that_comes_later(processes: Processes) -> None:
    """Without a timeout the actor warns, retries, and takes part once the learner is there."""
    port = reserve_ports()
    actor = processes.actor(f"127.0.0.1:{port}", "CartPole-v1", name="early")
    wait_until(lambda: actor.events("learner_unreachable"), "the actor says so", said=actor.said)
    learner = processes.learner(write_run(processes.folder, {"CartPole": small()}), port=port)
    learner.wait_for_version("CartPole", 1, actor)
    assert actor.events("learner_unreachable")[0]["address"] == f"127.0.0.1:{port}"
    assert len(actor.events("connected")) == 1


def test_an_environment_of_another_shape(shared_learner: LearnerProcess, processes: Processes) -> None:
    """An actor whose spec differs from the first one's ends with 32, and the line shows both."""
    first = processes.actor(shared_learner.address, toys.named("box_space"), "--behavior", "Mismatch", name="first")
    shared_learner.wait_for_version("Mismatch", 1, first)
    arguments = ("--behavior", "Mismatch", "--log-format", "console")
    line = processes.actor(shared_learner.address, toys.named("wide"), *arguments, name="second").fails_with(32)
    assert "run float32[3]" in line
    assert "actor float32[5]" in line
    assert "continuous" in line
    assert first.is_running


def test_a_behavior_that_the_run_does_not_have(shared_learner: LearnerProcess, processes: Processes) -> None:
    """An unknown behavior ends the actor with 35, and the line lists the known ones."""
    arguments = ("--behavior", "Discreet", "--log-format", "console")
    line = processes.actor(shared_learner.address, "CartPole-v1", *arguments).fails_with(35)
    assert "Discreet" in line
    assert "Discrete" in line.replace("Discreet", "")


def test_a_choice_that_only_the_user_can_make(shared_learner: LearnerProcess, processes: Processes) -> None:
    """Without --behavior in a run with several, the actor ends with 10 and lists them."""
    line = processes.actor(shared_learner.address, "CartPole-v1", "--log-format", "console").fails_with(10)
    assert "choose one with --behavior" in line
    assert "Continuous" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--num-envs", "none"), ("--num-envs 'none'",)),
        (("--env-kwargs", "[1]"), ("--env-kwargs",)),
        (("--nmu-envs", "2"), ("--nmu-envs",)),
        (("--learner", "nowhere"), ("--learner 'nowhere'",)),
        (("--learner", "192.0.2.1:50051"), ("192.0.2.1:50051", "--insecure")),
    ],
)
def test_a_wrong_command_line(processes: Processes, arguments: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """A wrong flag or value ends the actor with 10 before it connects, and is named; so does plain text for another machine."""
    line = processes.actor(NOBODY, "CartPole-v1", *arguments).fails_with(10)
    assert all(word in line for word in expected), line


def test_a_wrong_variable(processes: Processes) -> None:
    """An unknown ROLLCAST_ variable is an error that suggests the nearest one."""
    arguments = ("-m", "actor_client", "gym", "--env", "CartPole-v1")
    actor = processes.python("actor", *arguments, environment={"ROLLCAST_ACTOR_NUM_ENV": "4"})
    assert "did you mean ROLLCAST_ACTOR_NUM_ENVS?" in actor.fails_with(10)


def test_json_logs_hold_the_error(processes: Processes, tmp_path: Path) -> None:
    """With --log-format json the last line is also JSON."""
    line = processes.actor(NOBODY, "NoSuch-v3").fails_with(11)
    assert json.loads(line)["exit_code"] == 11
