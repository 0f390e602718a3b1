"""A package that adds a trainer, a reward signal, an encoder, a writer and a callback is installed by pip, and used."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from actor_client.envs.factory import make_env_batch
from learner.common.exits import ExitCode, UserError
from learner.settings.load import load_run_options
from tests.e2e.inprocess import connected
from tests.e2e.processes import ROOT, SECONDS, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.toys import named

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).parent / "rollcast_example"
INSTALL_SECONDS = 100
BEHAVIOR: dict[str, Any] = {
    "trainer_type": "cautious",
    "hyperparameters": {
        "batch_size": 64, "buffer_size": 256, "num_epoch": 1, "epsilon": 0.2, "epsilon_schedule": "constant", "caution": 4.0,
    },
    "network_settings": {"hidden_units": 16, "num_layers": 1, "vis_encode_type": "average"},
    "reward_signals": {"extrinsic": {"gamma": 0.9}, "brightness": {"gamma": 0.5, "full_scale": 510}},
    "time_horizon": 32,
    "max_steps": 1000,
    "summary_freq": 300,
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--target", folder / "site", source], check=True, capture_output=True, timeout=INSTALL_SECONDS
    )
    return folder / "site"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def run_file(folder: Path, rollcast: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Writes a run file that uses all the package adds."""
    path = folder / "run.yaml"
    block = {"stats_writers": ["csv", "lines"], "callbacks": ["told"], "torch_threads": 1, "drain_seconds": 2.0}
    document = {"behaviors": {"Picture": BEHAVIOR | changes}, "rollcast": block | (rollcast or {})}
    path.write_text(yaml.safe_dump(document | {"env_settings": {"seed": 3}}))
    return path


def patient() -> dict[str, Any]:
    """Changes the behavior to the trainer that extends APPO."""
    hyperparameters = {key: value for key, value in BEHAVIOR["hyperparameters"].items() if key != "caution"}
    return {"trainer_type": "patient", "hyperparameters": hyperparameters}


def declared(learner: LearnerProcess) -> tuple[int, bool]:
    """Declares the behavior as an actor does, and returns its lag limit and whether segments are cut at each swap."""
    batch = make_env_batch(named("image_space"), num_envs=1, behavior="Picture")
    try:
        with connected(learner.address, "asking") as link:
            behavior = link.declare(batch.spec, 0, 1, SECONDS)
            return behavior.max_policy_lag, behavior.cut_at_swap
    finally:
        batch.close()


def checked(site: Path, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `check-config` where the package is installed, and says which heavy modules that took."""
    program = (
        "import sys\nfrom learner.cli import main\ncode = main(sys.argv[1:])\n"
        "print('torch' in sys.modules, file=sys.stderr)\nsys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "check-config", str(file), *arguments],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env={"PYTHONPATH": f"{site}"},
    )  # fmt: skip


@pytest.mark.slow
def test_all_five_are_used_by_a_run(site: Path, processes: Processes, tmp_path: Path) -> None:
    """The run trains with the trainer, the signal and the encoder, writes with the writer, tells the callback, and leaves a model."""
    environment = {"PYTHONPATH": str(site)}
    options = ["--run-id", "run", "--results-dir", str(tmp_path), "--address", "127.0.0.1:0", "--log-format", "json"]
    learner = processes.python(
        "learner", "-m", "learner", "serve", str(run_file(tmp_path)), *options, environment=environment
    )
    addresses = tmp_path / "run" / "address.json"
    wait_until(lambda: addresses.exists() or not learner.is_running, "the learner listens", said=learner.said)
    assert learner.is_running, learner.said()
    actor = processes.actor(json.loads(addresses.read_text())["address"], named("image_space"))
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    summaries = [json.loads(line) for line in (tmp_path / "run" / "lines.jsonl").read_text().splitlines()]
    assert {summary["Policy/Epsilon"] for summary in summaries if "Policy/Epsilon" in summary} == {0.05}
    assert any("Policy/Brightness Value Estimate" in summary for summary in summaries)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["policy_version"] >= 2
    assert (tmp_path / "run" / "Picture.onnx").exists()
    assert (tmp_path / "run" / "told.txt").read_text().startswith("max_steps: Picture ")


def test_settings_of_packages_are_checked_without_torch(site: Path, tmp_path: Path) -> None:
    """They are shown with their defaults; nothing of it needs torch."""
    hyperparameters = {key: value for key, value in BEHAVIOR["hyperparameters"].items() if key != "caution"}
    done = checked(site, run_file(tmp_path, hyperparameters=hyperparameters), "--json")
    assert (done.returncode, done.stderr.strip()) == (0, "False"), done.stderr
    shown = json.loads(done.stdout)["behaviors"]["Picture"]
    assert shown["hyperparameters"]["caution"] == 2.0
    assert shown["reward_signals"]["brightness"] == {"gamma": 0.5, "strength": 1.0, "full_scale": 510}


@pytest.mark.parametrize("trainer", ["cautious", "patient"])
@pytest.mark.slow
def test_a_trainer_that_extends_ours_runs_in_lock_step(
    trainer: str, site: Path, processes: Processes, tmp_path: Path
) -> None:
    """As its parent does: rounds are trained, and the run can be repeated."""
    changes = {**patient(), "threaded": False} if trainer == "patient" else {}
    file = run_file(tmp_path, {"lockstep": {"actors": 1}}, **changes)
    learner = processes.learner(file, environment={"PYTHONPATH": str(site)})
    actor = processes.actor(learner.address, named("image_space"))
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["lockstep"]["reproducible"]
    assert summary["policy_version"] >= 2


@pytest.mark.slow
def test_a_trainer_that_extends_ppo_is_on_policy(site: Path, processes: Processes, tmp_path: Path) -> None:
    """Under `on_policy: strict` actors cut segments at each swap, and the run trains; its lag limit is that of PPO."""
    learner = processes.learner(run_file(tmp_path, {"on_policy": "strict"}), environment={"PYTHONPATH": str(site)})
    assert declared(learner) == (4, True)
    actor = processes.actor(learner.address, named("image_space"))
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    assert json.loads((learner.folder / "summary.json").read_text())["policy_version"] >= 2


@pytest.mark.slow
def test_a_trainer_that_extends_appo_is_threaded(site: Path, processes: Processes, tmp_path: Path) -> None:
    """`check-config` says so; in a run it has the lag limit of APPO, and strict does not concern it."""
    file = run_file(tmp_path, {"on_policy": "strict"}, **patient())
    done = checked(site, file, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["behaviors"]["Picture"]["threaded"] is True
    learner = processes.learner(file, environment={"PYTHONPATH": str(site)})
    assert declared(learner) == (32, False)
    actor = processes.actor(learner.address, named("image_space"))
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    assert json.loads((learner.folder / "summary.json").read_text())["policy_version"] >= 2


AWAC: dict[str, Any] = {
    "trainer_type": "awac",
    "hyperparameters": {
        "batch_size": 128, "buffer_init_steps": 256, "steps_per_update": 2, "learning_rate": 3.0e-3, "tau": 0.02,
        "advantage_scale": 0.1,
    },
    "network_settings": {"hidden_units": 64, "num_layers": 2, "activation": "relu"},
    "reward_signals": {"extrinsic": {"gamma": 0.98}},
    "time_horizon": 16,
    "max_steps": 20_000,
}  # fmt: skip


@pytest.mark.slow
def test_a_replay_trainer_of_a_package_learns(site: Path, processes: Processes, tmp_path: Path) -> None:
    """From the 20 steps of chance to a mean of 60 on CartPole, within 20,000 steps; in lock-step, so that runs repeat."""
    block = {"lockstep": {"actors": 1}, "target_return": 60, "reward_buffer_episodes": 20, "torch_threads": 1}
    document = {"behaviors": {"CartPole": AWAC}, "rollcast": block, "env_settings": {"seed": 3}}
    file = tmp_path / "awac.yaml"
    file.write_text(yaml.safe_dump(document))
    learner = processes.learner(file, environment={"PYTHONPATH": str(site)})
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert (summary["stop_reason"], summary["lockstep"]["reproducible"]) == ("target_return", True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hyperparameters": {"cautoin": 3.0}}, "unknown key 'cautoin'; did you mean 'caution'?"),
        ({"hyperparameters": {"caution": 0.0}}, "caution: must be greater than 0"),
        ({"reward_signals": {"brightness": {"scale": 1}}}, "reward_signals.brightness.scale: unknown key 'scale'"),
        ({"reward_signals": {"darkness": {}}}, "unknown key 'darkness'"),
        ({"trainer_type": "couscous"}, "there is no trainer 'couscous'; trainers that exist: appo, cautious, "),
        ({"network_settings": {"vis_encode_type": "avrage"}}, "'fully_connected' or 'average', got 'avrage'"),
    ],
)
def test_mistakes_are_found_as_in_our_own_blocks(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    """An unknown key, a value out of range and an unknown name are errors that say what there is."""
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(UserError) as caught:
        load_run_options(run_file(tmp_path, **changes), environ={})
    assert caught.value.exit_code == ExitCode.RUN_FILE
    assert message in "\n".join([str(caught.value), *caught.value.details])


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    """What nothing declares is refused by name."""
    done = checked(tmp_path, run_file(tmp_path))
    assert done.returncode == 11
    assert "there is no trainer 'cautious'" in done.stderr
