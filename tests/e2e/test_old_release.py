"""Tests that run folders, learners and actors of an earlier commit work with those of now, or are refused by name."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rollcast.auth import Role

from actor_client.exits import ExitCode as ActorExitCode
from learner.shared.exits import ExitCode
from learner.shared.settings.addresses import TOKENS
from tests.e2e.books import by_reason, fates_of
from tests.e2e.processes import (
    ROOT,
    Child,
    LearnerProcess,
    Processes,
    command_environment,
    processes_in,
    wait_until,
)
from tests.e2e.runs import small, write_run
from tests.learner.service.identity.certificates import Folder

pytestmark = pytest.mark.nightly

COMMIT = "c21eb1330c64ac383f3722ba0f29c1567b226fa9"
BEFORE_TOURNAMENTS = "1633d19995b5393ee49b87bc344c8483244c3a1c"
"""The last commit whose actors know self-play, and neither tournaments nor opponents of evaluations."""
BEFORE_RECORDS = "c342912d3a57e4321a2c26a679cd9bd48e3ec3bc"
"""The last commit that knows evaluations against opponents, and no records of their games."""
NAME = "Behavior"
PLAYED = "Played"
"""A behavior with self-play, of which actors of that commit know nothing."""
ENVS = {"ppo": "CartPole-v1", "sac": "Pendulum-v1"}
SAC = {
    "batch_size": 32,
    "buffer_size": 4000,
    "buffer_init_steps": 64,
    "steps_per_update": 4,
    "save_replay_buffer": True,
}
NETWORK = {"hidden_units": 16, "num_layers": 1, "normalize": True}
BEHAVIORS: dict[str, dict[str, Any]] = {
    "ppo": small(network_settings=NETWORK),
    "sac": small(trainer_type="sac", hyperparameters=SAC, network_settings=NETWORK, time_horizon=16),
}
PRINT_PLACES = (
    "import actor_client, learner, rollcast; print(*(m.__path__[0] for m in (actor_client, learner, rollcast)))"
)


def git(*arguments: str) -> bytes:
    """Runs git in this repository and returns its output; fails with a remedy if a commit is missing."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=60, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        pytest.fail(
            f"git has no commit {arguments[-1]} here, which this test compares with ({said}). In a shallow clone run"
            " `git fetch --unshallow`, or `git fetch origin` and the commit; replace a copy without .git with a clone.",
            pytrace=False,
        )
    return done.stdout


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the interpreter of an environment with the wheel of the commit."""
    return install(COMMIT, tmp_path_factory.mktemp("old"))


def install(commit: str, folder: Path) -> Path:
    """Returns the interpreter of an environment in which the wheel of a commit is installed.

    Its dependencies are those of this environment.
    """
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
        archive.extractall(folder / "source", filter="data")
    run_in(
        folder / "source", sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)
    )
    (wheel,) = folder.glob("*.whl")
    run_in(folder, sys.executable, "-m", "venv", "--without-pip", "venv")
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    run_in(folder, *pip, str(wheel))
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A path in a .pth file takes no notice of the .pth files there: this clone, which is installed by one, stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    places = run_in(ROOT, str(python), "-P", "-c", PRINT_PLACES).split()
    assert places == [str(site / name) for name in ("actor_client", "learner", "rollcast")]
    return python


def run_in(folder: Path, *command: str) -> str:
    """Runs a command in a folder and returns its output; fails with what it said."""
    done = subprocess.run(
        command, cwd=folder, env=command_environment(), capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass
class OldRun:
    """A stopped run of an old learner.

    Attributes:
        trainer_type: Of its behavior.
        processes: Of the run; the old actor among them waits for a learner at the port.
        folder: Of the run.
        run_file: Its settings.
        port: Where its learner listened.
        actor: The old actor.
        acked: Steps by actor that the old learner acknowledged.
        state: What it left to resume from.
    """

    trainer_type: str
    processes: Processes
    folder: Path
    run_file: Path
    port: int
    actor: Child
    acked: dict[str, int]
    state: dict[str, Any]


def acked(learner: LearnerProcess, actor: str) -> int:
    """Returns the steps of an actor that the learner acknowledged; the books of the actor must balance."""
    books = learner.actor(actor).books
    assert all(entry.produced_steps == fates_of(entry) for entry in books)
    return sum(entry.acked_steps for entry in books)


@pytest.fixture(scope="module", params=list(BEHAVIORS))
def run(old: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[OldRun]:
    """Runs an old learner with an old and a new actor."""
    folder = tmp_path_factory.mktemp(request.param)
    with processes_in(folder) as processes:
        run_file = write_run(folder, {NAME: BEHAVIORS[request.param]}, lease_seconds=5.0)
        learner = processes.learner(run_file, python=old)
        env, options = ENVS[request.param], ("--num-envs", "2", "--behavior", NAME)
        actors = {
            "old": processes.actor(learner.address, env, *options, name="old", python=old),
            "new": processes.actor(learner.address, env, *options, name="new"),
        }

        def is_trained() -> bool:
            return learner.behavior(NAME).version >= 4 and all(acked(learner, name) > 100 for name in actors)

        learner.wait_for(is_trained, "both actors bring steps, and version 4", *actors.values())
        port = int(learner.address.rpartition(":")[2])
        done = {name: acked(learner, name) for name in actors}
        actors["new"].signal(signal.SIGTERM)
        assert actors["new"].wait() == 0, actors["new"].said()
        learner.signal(signal.SIGTERM)
        assert learner.wait() == 0, learner.said()
        state = torch.load(learner.folder / "run_state.pt", weights_only=True)
        yield OldRun(request.param, processes, learner.folder, run_file, port, actors["old"], done, state)


def test_an_old_learner_trains_with_old_and_new_actors(run: OldRun) -> None:
    """An old and a new actor both bring steps, and none is refused."""
    assert run.acked.keys() == {"old", "new"}
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["policy_version"] == run.state["trainers"][NAME]["version"] >= 4
    assert set(summary["ledger"]["dropped"]) <= {"stale"}
    assert summary["ledger"]["received"] >= sum(run.acked.values())


def test_an_old_run_is_evaluated(run: OldRun, tmp_path: Path) -> None:
    """`rollcast evaluate` plays the last policy of the old folder."""
    options = ["--episodes", "4", "--address", "127.0.0.1:0", "--log-format", "json", "--json"]
    child = run.processes.python("evaluate", "-m", "learner", "evaluate", str(run.folder), *options)
    wait_until(lambda: child.events("waiting_for_actors") or not child.is_running, "it waits", said=child.said)
    (waiting,) = child.events("waiting_for_actors")
    player = run.processes.actor(waiting["address"], ENVS[run.trainer_type], "--behavior", NAME, name="player")
    assert child.wait() == ExitCode.OK, child.said()
    assert player.wait() == 0, player.said()
    (found,) = json.loads(child.out())["behaviors"]
    assert (found["behavior"], found["episodes"], found["is_complete"]) == (NAME, 4, True)
    if run.trainer_type == "ppo":
        assert found["lengths"]["mean"] == found["returns"]["mean"] > 5
    else:
        assert found["lengths"]["mean"] == 200


def test_an_old_run_is_resumed(run: OldRun, old: Path, tmp_path: Path) -> None:
    """A resumed old run continues its counters and books with an old and a new actor; self-play needs a new one."""
    behaviors = {NAME: BEHAVIORS[run.trainer_type], PLAYED: small(self_play={"save_steps": 1000})}
    run_file = write_run(tmp_path, behaviors, lease_seconds=5.0)
    learner = run.processes.learner(run_file, "--resume", port=run.port)
    trainer, books = run.state["trainers"][NAME], run.state["ledger"][NAME]
    status = learner.status()
    (row,) = status.behaviors
    assert status.generation == 2
    assert row.version >= trainer["version"]
    assert row.env_steps_trained >= trainer["steps_trained"]
    assert row.episodes >= trainer["tally"]["episodes"]
    assert row.books.received >= books["received"]
    assert row.books.trained >= books["trained"]
    assert by_reason(row.books.lost) == ({"restart": books["queued"]} if books["queued"] else {})
    newcomer = run.processes.actor(
        learner.address, ENVS[run.trainer_type], "--num-envs", "2", "--behavior", NAME, name="newcomer"
    )
    refused = run.processes.actor(
        learner.address, ENVS[run.trainer_type], "--behavior", PLAYED, name="refused", python=old
    )

    def goes_on() -> bool:
        both = acked(learner, "old") > run.acked["old"] + 200 and acked(learner, "newcomer") > 200
        return both and learner.behavior(NAME).version >= trainer["version"] + 4

    learner.wait_for(goes_on, "both actors bring steps, and four versions", run.actor, newcomer)
    said = refused.fails_with(ActorExitCode.PROTOCOL_TOO_OLD)
    assert f"behavior {PLAYED} has self-play, which needs protocol revision 2; the actor uses 1: update" in said
    assert bool(learner.events("replay_loaded")) == (run.trainer_type == "sac"), learner.said()
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["generation"] == 2
    assert summary["policy_version"] >= trainer["version"] + 4
    ledger = summary["ledger"]
    assert ledger["received"] == ledger["trained"] + ledger["queued"] + sum(
        steps for kind in ("dropped", "lost") for steps in ledger[kind].values()
    )


def test_what_only_new_ones_can_do_is_refused_by_name(old: Path, processes: Processes, tmp_path: Path) -> None:
    """A new learner says to an old actor that it needs a token, and a new actor says that an old learner has no TLS."""
    certs = Folder.make(tmp_path / "certs", rig=Role.ACTOR)
    behaviors = {NAME: BEHAVIORS["ppo"]}
    learner = processes.learner(write_run(tmp_path, behaviors, token_file=str(certs.path / TOKENS)))
    refused = processes.actor(learner.address, ENVS["ppo"], "--behavior", NAME, name="refused", python=old)
    assert refused.wait() != 0
    assert "the learner requires a token" in refused.said()
    (tmp_path / "old").mkdir()
    run_file = write_run(tmp_path / "old", behaviors)
    earlier = processes.learner(run_file, run="old", python=old)
    secure = ("--tls-ca", str(certs.ca))
    newcomer = processes.actor(earlier.address, ENVS["ppo"], "--behavior", NAME, *secure, name="newcomer")
    assert "the learner uses plain text, and this side TLS" in newcomer.fails_with(ActorExitCode.UNTRUSTED)


def test_actors_without_tournaments_play_them(processes: Processes, tmp_path: Path) -> None:
    """An actor of a build without tournaments plays the games of one, and those of evaluations, which all count once."""
    python = install(BEFORE_TOURNAMENTS, tmp_path / "installed")
    network = {"hidden_units": 16, "num_layers": 1, "vis_encode_type": "fully_connected"}
    play = {"save_steps": 300, "team_change": 600, "swap_steps": 200}
    settings = small(max_steps=1200, network_settings=network, self_play=play)
    evaluation = {"interval_steps": 400, "episodes": 6, "opponents": ["random"]}
    learner = processes.learner(write_run(tmp_path, {PLAYED: settings}, evaluation=evaluation))
    options = ["--team", "player_1=1", "--num-envs", "4"]
    env = "connect_four_v3"
    player = processes.actor(learner.address, env, *options, name="earlier", command="pettingzoo", python=python)
    assert [learner.wait(), player.wait()] == [0, 0], learner.said() + player.said()
    whole = [line for line in learner.events("evaluation") if "cut_short" not in line]
    assert {line["episodes"] for line in whole} == {6}
    (books,) = player.events("books")
    assert books["produced"] == books["acked"] + sum(books["discarded"].values()) + sum(books["dropped"].values())
    rated = ["--against", "random", "--checkpoints", "1", "--games", "24", "--interval", "1", "--json"]
    command = ["-m", "learner", "tournament", str(learner.folder), *rated, "--address", "127.0.0.1:0"]
    tournament = processes.python("tournament", *command, "--log-format", "json")
    wait_until(lambda: tournament.events("waiting_for_actors"), "it waits", said=tournament.said)
    address = tournament.events("waiting_for_actors")[0]["address"]
    again = processes.actor(address, env, *options, name="again", command="pettingzoo", python=python)
    assert [tournament.wait(), again.wait()] == [0, 0], tournament.said() + again.said()
    assert json.loads(tournament.out())["games"] == 24
    assert again.events("books")[0]["produced"] == 0


def test_game_records_are_left_out_where_one_side_does_not_know_them(processes: Processes, tmp_path: Path) -> None:
    """A learner of an earlier build ignores the records of a new actor; an earlier actor sends a new learner none."""
    python = install(BEFORE_RECORDS, tmp_path / "installed")
    network = {"hidden_units": 16, "num_layers": 1, "vis_encode_type": "fully_connected"}
    play = {"save_steps": 300, "team_change": 600, "swap_steps": 200}
    settings = small(max_steps=1200, network_settings=network, self_play=play)
    evaluation = {"interval_steps": 400, "episodes": 6, "opponents": ["random"]}
    for name, of_learner, of_actor in (("old-learner", python, None), ("old-actor", None, python)):
        (tmp_path / name).mkdir()
        run_file = write_run(tmp_path / name, {PLAYED: settings}, evaluation=evaluation)
        learner = processes.learner(run_file, run=name, python=of_learner)
        options = ["--game", "tic_tac_toe", "--num-games", "4", "--learner", learner.address, "--log-format", "json"]
        player = processes.python(f"player-{name}", "-m", "actor_client", "boards", *options, python=of_actor)
        assert [learner.wait(), player.wait()] == [0, 0], learner.said() + player.said()
        whole = [line for line in learner.events("evaluation") if "cut_short" not in line]
        assert {line["episodes"] for line in whole} == {6}
        assert not (learner.folder / PLAYED / "games").exists()
        (books,) = player.events("books")
        assert books["produced"] == books["acked"] + sum(books["discarded"].values()) + sum(books["dropped"].values())
