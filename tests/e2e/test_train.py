"""Tests `rollcast train`: a learner and its actors in one command, which end together."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from actor_client.exits import ExitCode as ActorCode
from learner.shared.exits import ExitCode
from learner.shared.observe.address import BoundAddresses, read_addresses
from tests.e2e.preloaded import children_of
from tests.e2e.processes import DEAD_PROXIES, Child, Processes, processes_in, wait_until
from tests.ports import reserve_ports

CORRIDOR = """
import gymnasium, numpy

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 10, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.x = 0
        return numpy.array([self.x], numpy.float32), {}

    def step(self, action):
        self.x = max(0, self.x + (1 if action == 1 else -1))
        return numpy.array([self.x], numpy.float32), -0.1, self.x == 10, False, {}

class Slope(Corridor):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)

    def step(self, action):
        return super().step(int(action[0] > 0))

class Broken(Corridor):
    def step(self, action):
        raise RuntimeError("the motor is off")
"""
ENDLESS = ("--set", "rollcast.target_return=null", "--set", "behaviors.CartPole.max_steps=1e9")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes in a folder with environments of the user's own, which end with the test."""
    (tmp_path / "corridor.py").write_text(CORRIDOR)
    with processes_in(tmp_path, tmp_path) as started:
        yield started


def train(processes: Processes, *arguments: str, name: str = "train", proxies: bool = False) -> Child:
    """Starts `rollcast train` with a JSON log, which often tells how far it is."""
    often = ("--log-format", "json", "--set", "rollcast.summary_seconds=0.2")
    line = ("-m", "rollcast", "train", *often, "--http-address", "127.0.0.1:0", *arguments)
    return processes.python(name, *line, environment=DEAD_PROXIES if proxies else {})


def actors_of(child: Child) -> list[int]:
    """Returns the ids of the actors that a command has started."""
    return [pid for pid in children_of(child.pid) if b"actor_client" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def acts(child: Child) -> list[int]:
    """Waits until actors have brought steps, and returns their ids."""

    def has_steps() -> bool:
        assert child.is_running, child.said()
        return any(line["env_steps_trained"] > 0 for line in child.events("progress"))

    wait_until(has_steps, "steps are trained", said=child.said)
    return actors_of(child)


def all_ended(pids: list[int]) -> bool:
    """Returns whether processes have ended; one that nobody waits for counts as ended."""
    return not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def addresses(processes: Processes, run: str) -> BoundAddresses:
    """Returns where a run listens."""
    found = read_addresses(processes.folder / "results" / run)
    assert found is not None
    return found


def test_an_example_trains_to_its_target_behind_a_dead_proxy(processes: Processes) -> None:
    """The settings are the example's, the target ends the run with 0, and the actor ends by itself."""
    child = train(processes, "--env", "CartPole-v1", "--target-return", "40", "--seed", "3", proxies=True)
    actors = acts(child)
    assert child.wait() == ExitCode.OK, child.said()
    summary = json.loads((processes.folder / "results" / "cartpole" / "summary.json").read_text())
    assert (summary["stop_reason"], summary["mean_return_100"] >= 40) == ("target_return", True)
    (chosen,) = [line["note"] for line in child.events("settings")]
    assert chosen.startswith("ppo, of the example cartpole; ")
    assert "init cartpole writes them to cartpole.yaml" in chosen
    assert [line["reason"] for line in child.events("actor_left")] == ["done"]
    assert not any("start" in line for line in child.events("waiting_for_actors")), "it starts one itself"
    assert all_ended(actors)


def test_a_learner_with_tls_lets_its_own_actors_in(processes: Processes) -> None:
    """They need no join code: the learner gives them its authority and a token, which ends with it."""
    made = processes.python("certs", "-m", "learner", "certs", "init", "certs", "--host", "localhost")
    assert made.wait() == ExitCode.OK, made.said()
    child = train(processes, "--env", "CartPole-v1", "--certs", "certs", "--target-return", "30", "--seed", "3")
    assert child.wait() == ExitCode.OK, child.said()
    assert child.events("learner_started")[0]["security"] == "TLS"
    assert not child.events("secret_readable_by_others")


def test_an_interrupt_saves_and_ends_both_sides(processes: Processes) -> None:
    """After Ctrl-C everything is saved, the actors are gone, and --resume continues the run."""
    child = train(processes, "--env", "CartPole-v1", "--actors", "2", *ENDLESS)
    actors = acts(child)
    assert len(actors) == 2
    assert {line["actor"] for line in child.events("actor_joined")} == {"local-1", "local-2"}
    child.signal(signal.SIGINT)
    assert child.wait() == ExitCode.OK, child.said()
    assert all_ended(actors)
    again = train(processes, "--env", "CartPole-v1", "--resume", "--target-return", "30", name="again")
    assert again.wait() == ExitCode.OK, again.said()
    assert again.events("learner_started")[0]["generation"] == 2
    (told,) = again.events("flags_left_out")
    assert told["flags"] == ["--set behaviors.CartPole.max_steps", "--actors"]
    _kills_an_evaluation(processes)


def _kills_an_evaluation(processes: Processes) -> None:
    """Kills an evaluation of the run, whose actor must end too."""
    line = ("cartpole", "--env", "CartPole-v1", "--episodes", "1000000", "--log-format", "json")
    child = processes.python("evaluate", "-m", "rollcast", "evaluate", *line)
    wait_until(lambda: child.events("actor_joined"), "its actor plays", said=child.said)
    actors = actors_of(child)
    assert len(actors) == 1
    child.kill()
    wait_until(lambda: all_ended(actors), "the actor ends")


@pytest.mark.parametrize(
    ("env", "code", "words"),
    [
        ("CartPol-v1", ActorCode.UNKNOWN_ENVIRONMENT, "CartPol"),
        ("nowhere:Env", ActorCode.UNKNOWN_ENVIRONMENT, "nowhere"),
        ("corridor:Nothing", ActorCode.UNKNOWN_ENVIRONMENT, "Nothing"),
    ],
)
def test_an_environment_that_cannot_be_made_starts_no_run(
    env: str, code: ActorCode, words: str, processes: Processes
) -> None:
    """The actor's own error and code end the command before there is a run folder."""
    child = train(processes, "--env", env)
    assert words in child.fails_with(code)
    assert not (processes.folder / "results").exists()


def test_an_actor_that_fails_ends_the_command(processes: Processes) -> None:
    """The error and code of the actor end the run, which is saved; its warnings are in the log, with its name."""
    child = train(processes, "--env", "corridor:Broken")
    assert child.wait() == ActorCode.ENVIRONMENT_FAILED, child.said()
    last = child.err().splitlines()[-1]
    assert last.startswith("error: 3 failures in a row")
    assert "the motor is off" in last
    assert {line["actor"] for line in child.events("environment_failed")} == {"local"}
    summary = json.loads((processes.folder / "results" / "Broken" / "summary.json").read_text())
    assert summary["stop_reason"] == "actors_ended"


def test_a_resumed_run_refuses_an_environment_of_other_shapes(processes: Processes) -> None:
    """The last line has the run, both shapes of all that differs, and what to do; the code is the actor's for it."""
    child = train(processes, "--env", "corridor:Corridor")
    acts(child)
    child.signal(signal.SIGINT)
    assert child.wait() == ExitCode.OK, child.said()
    path = processes.folder / "corridor.py"
    text = path.read_text().replace("(0, 10, (1,)", "(0, 10, (3,)").replace("Discrete(2)", "Discrete(4)")
    path.write_text(text.replace("numpy.array([self.x]", "numpy.array([self.x] * 3"))
    again = train(processes, "--env", "corridor:Corridor", "--resume", name="again")
    line = again.fails_with(ActorCode.SPEC_MISMATCH)
    assert "declared differently by the first actor of the run Corridor: " in line
    assert "run float32[1], actor float32[3]" in line
    assert "run [2], actor [4]" in line
    assert line.endswith("or train the new one in a run of its own, by the learner's --run-id")


def test_a_wrong_flag_of_the_actor_ends_the_command(processes: Processes) -> None:
    """The settings of the actor are checked by the actor, also with a run file."""
    (processes.folder / "run.yaml").write_text("default_settings: {trainer_type: ppo}\n")
    child = train(processes, "run.yaml", "--env", "corridor:Corridor", "--num-envs", "0")
    assert "--num-envs" in child.fails_with(ActorCode.USAGE)


def test_one_of_two_actors_may_die(processes: Processes) -> None:
    """A killed actor is logged by its name while the other continues; the last one ends the command."""
    child = train(processes, "--env", "CartPole-v1", "--actors", "2", *ENDLESS)
    first, second = acts(child)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: child.events("actor_ended"), "the end of one actor is logged", said=child.said)
    (ended,) = child.events("actor_ended")
    assert (ended["others"], ended["exit_code"]) == (1, ExitCode.ACTORS_FAILED)
    assert child.is_running
    os.kill(second, signal.SIGKILL)
    assert "was killed by signal 9" in child.fails_with(ExitCode.ACTORS_FAILED)


def test_two_runs_at_once_have_a_port_each(processes: Processes) -> None:
    """A taken port is replaced by a free one, and actors find their own learner; another machine's can still join."""
    both = [
        train(processes, "--env", f"corridor:{name}", "--num-envs", "2", name=name) for name in ("Corridor", "Slope")
    ]
    for child in both:
        acts(child)
    ports = {addresses(processes, child.name).address for child in both}
    assert len(ports) == 2
    for child in both:
        assert [line["behavior"] for line in child.events("behavior_declared")] == [child.name]
        (how,) = [line["how"] for line in child.events("more_machines")]
        assert "--address 0.0.0.0:" in how
    kinds = [child.events("settings")[0]["note"].split(";")[0] for child in both]
    assert kinds == ["ppo, for discrete actions", "ppo, for continuous actions"]
    guest = processes.actor(addresses(processes, "Corridor").address, "corridor:Corridor", name="guest")
    wait_until(lambda: len(both[0].events("actor_joined")) == 2, "another actor joins", said=guest.said)


def test_an_address_that_was_given_is_kept(processes: Processes) -> None:
    """A port that the user chose is not replaced; the actors of the learner that had it end when that is killed."""
    taken = train(
        processes, "--env", "CartPole-v1", "--actors", "2", "--address", f"127.0.0.1:{reserve_ports()}", *ENDLESS
    )
    actors = acts(taken)
    address = addresses(processes, "cartpole").address
    child = train(processes, "--env", "CartPole-v1", "--run-id", "other", "--address", address, name="other")
    assert address in child.fails_with(ExitCode.PORT_IN_USE)
    taken.kill()
    wait_until(lambda: all_ended(actors), "the actors end")


def test_the_trainer_of_an_example_is_chosen(processes: Processes) -> None:
    """--trainer chooses another example of the environment, or the defaults of the trainer."""
    steps = ("--set", "rollcast.target_return=null", "--max-wall-seconds", "1")
    example = train(processes, "--env", "Pendulum-v1", "--trainer", "sac", *steps, name="example")
    plain = train(processes, "--env", "corridor:Slope", "--trainer", "sac", *steps, name="plain")
    assert [example.wait(), plain.wait()] == [0, 0], example.said() + plain.said()
    assert example.events("settings")[0]["note"].startswith("sac, of the example pendulum-sac; ")
    assert plain.events("settings")[0]["note"].startswith("the defaults of sac; ")
    (processes.folder / "run.yaml").write_text("default_settings: {trainer_type: ppo}\n")
    both = train(processes, "run.yaml", "--env", "CartPole-v1", "--trainer", "sac", name="both")
    assert "give only one" in both.fails_with(ExitCode.USAGE)
