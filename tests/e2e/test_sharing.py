"""Tests SHARING.md: a run is pushed to a hub, fetched, and repeated; its files go to the writers that keep files."""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rollcast
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from learner.start.share import Pushed, shared_files
from tests.documents import blocks, commands, section
from tests.e2e.processes import Processes, processes_in
from tests.hub import TOKEN, Hub, hub_running

PAGE = "deploy/examples/SHARING.md"
FEW = (
    "--address",
    "127.0.0.1:0",
    "--set",
    "rollcast.http=false",
    "--set",
    "behaviors.*.max_steps=2000",
    "--set",
    "rollcast.torch_threads=1",
)


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    """Returns a hub."""
    with hub_running() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the reader's folder."""
    return tmp_path_factory.mktemp("sharing")


@pytest.fixture(scope="module")
def reader(folder: Path, hub: Hub) -> Iterator[Processes]:
    """Starts commands in the reader's folder."""
    del hub
    with processes_in(folder, folder) as started:
        yield started


def typed(reader: Processes, hub: Hub, words: list[str], *more: str) -> str:
    """Types a command of the page as its user ``mia``, and returns what it printed."""
    assert words[0] in {"rollcast", "python"}
    words = [word.replace("USER/", "mia/") for word in words[1:]]
    program = ["-m", "rollcast"] if "-c" not in words else []
    child = reader.python(f"typed-{len(words)}-{words[0]}", *program, *words, *more, environment=hub.environment)
    assert child.wait() == 0, child.said()
    return child.out()


@pytest.fixture(scope="module")
def shared(reader: Processes, hub: Hub, folder: Path) -> Path:
    """Trains, pushes and pulls as the page does, and returns the fetched folder."""
    train, push, pull = commands(section(PAGE, "Share a run"))
    typed(reader, hub, train, *FEW)
    assert typed(reader, hub, push, "--episodes", "5", "--checkpoint", "last") == f"{hub.endpoint}/mia/cartpole\n"
    printed = typed(reader, hub, pull).splitlines()
    assert all((folder / name).is_file() for name in printed)
    return folder / "results" / "cartpole"


def test_what_is_fetched_is_what_was_pushed(shared: Path, hub: Hub) -> None:
    """Each file is the same, byte for byte, and the models are those of the run."""
    pushed = {name: data for name, data in hub.files["mia/cartpole"].items() if name != ".gitattributes"}
    found = {path.relative_to(shared).as_posix(): path.read_bytes() for path in shared.rglob("*") if path.is_file()}
    assert found == pushed
    own = {"CartPole.onnx", "CartPole/stats.csv", "CartPole/checkpoint.pt"}
    assert found.keys() - {"CartPole/best.onnx"} == own | {
        "README.md",
        "configuration.yaml",
        "summary.json",
        "curve.svg",
    }
    assert all((shared.parent / "pole" / name).read_bytes() == found[name] for name in own)


def test_nothing_of_the_machine_is_pushed(shared: Path, hub: Hub, folder: Path) -> None:
    """No file has a path, a token or the name of the machine."""
    secrets = [str(folder), TOKEN, (shared.parent / "pole" / "operator_token").read_text().strip(), str(Path.home())]
    secrets += [socket.gethostname(), str(Path(rollcast.__file__).parent)]
    for name, data in hub.files["mia/cartpole"].items():
        assert [secret for secret in secrets if len(secret) > 5 and secret.encode() in data] == [], name


def test_the_card_repeats_its_result(shared: Path, hub: Hub, reader: Processes) -> None:
    """Its metadata has the mean reward, and its commands print the mean and the interval of its table again."""
    card = (shared / "README.md").read_text()
    metadata = yaml.safe_load(card.split("---")[1])
    assert {"reinforcement-learning", "CartPole-v1", "ppo"} <= set(metadata["tags"])
    (result,) = metadata["model-index"][0]["results"]
    assert result["metrics"][0]["type"] == "mean_reward"
    assert "![Mean return of training against environment steps](curve.svg)" in card
    pull, evaluate, train = commands(card)
    assert pull == ["rollcast", "pull", "mia/cartpole"]
    said = re.fullmatch(r"mean return (\S+) (\[.*\]) over 5 episodes\n", typed(reader, hub, evaluate))
    assert said is not None
    assert f"| CartPole | {said[1]} | {said[2]} |" in card
    assert result["metrics"][0]["value"].startswith(f"{said[1]} +/- ")
    typed(reader, hub, train, *FEW)
    assert (shared.parent / "cartpole-again" / "summary.json").is_file()


def test_a_fetched_run_is_evaluated_and_continued(shared: Path, hub: Hub, reader: Processes) -> None:
    """Its checkpoint plays, and another run starts from it."""
    again, further = commands(section(PAGE, "Use a shared run"))
    assert again[:3] == ["rollcast", "train", "results/cartpole/configuration.yaml"]
    typed(reader, hub, further, *FEW)
    said = typed(reader, hub, shlex.split("rollcast evaluate cartpole --env CartPole-v1 --episodes 2"))
    assert "CartPole: 2 episodes" in said


def test_a_card_without_an_environment_has_what_the_run_measured(shared: Path) -> None:
    """The returns of its training, or its newest evaluation; and the commands that repeat the training."""
    run = shared.parent / "pole"
    request = Pushed(run, "mia/pole", checkpoint="best", env=None, episodes=1, is_private=False)
    mean = json.loads((run / "summary.json").read_text())["mean_return_100"]
    card = shared_files(request)["README.md"].decode()
    assert f"| CartPole | {mean:.2f} | - | - | 100 of training, the newest ones |" in card
    assert commands(card)[1][:3] == ["rollcast", "serve", "results/pole/configuration.yaml"]
    newest = {
        "event": "evaluation",
        "behavior": "CartPole",
        "step": 9,
        "episodes": 16,
        "returns": {"mean": 50.0, "std": 8.0},
    }
    broken = {**newest, "returns": None}
    with (run / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in ({**newest, "episodes": 4}, newest, broken))
    card = shared_files(request)["README.md"].decode()
    assert "| CartPole | 50.00 | [46.08, 53.92] | 8.00 | 16 of an evaluation during training | 9 |" in card


def test_a_policy_of_the_hub_acts(shared: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It acts as the fetched file does, and leaves nothing behind."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    policy, local = rollcast.load_policy("hf://mia/cartpole"), rollcast.load_policy(shared)
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    assert policy.act(observations).tolist() == local.act(observations).tolist()
    assert not policy.path.exists()
    with pytest.raises(rollcast.RollcastError, match="Repository not found"):
        rollcast.load_policy("hf://mia/none")


def test_a_push_without_an_account_is_one_line(shared: Path, hub: Hub, reader: Processes) -> None:
    """It ends with the hub's reason and what to do."""
    words = ["-m", "rollcast", "push", "pole", "mia/other"]
    child = reader.python("refused", *words, environment={**hub.environment, "HF_TOKEN": "hf_wrong"})
    assert child.wait() == 22
    (line,) = child.err().splitlines()
    assert (
        line
        == "error: the hub, of mia/other: Invalid username or password.; log in with hf auth login, or set HF_TOKEN"
    )
    assert "mia/other" not in hub.files


def test_a_run_without_a_model_is_one_line(hub: Hub, reader: Processes, folder: Path) -> None:
    """There is nothing to share before the first checkpoint."""
    run = folder / "results" / "empty"
    run.mkdir(parents=True)
    (run / "configuration.yaml").write_text("{}\n")
    child = reader.python("empty", "-m", "rollcast", "push", "empty", "mia/empty", environment=hub.environment)
    assert child.wait() == 13
    assert "has no exported model yet" in child.err()


def test_a_writer_of_ones_own_gets_the_files(reader: Processes, hub: Hub, folder: Path) -> None:
    """The writer of the page keeps settings, models and videos, and TensorBoard shows the videos."""
    (code,) = (block for block in blocks(section(PAGE, "A writer of your own"), "python"))
    (folder / "keeping.py").write_text(code)
    (film,) = commands(section(PAGE, "Videos while training"))
    typed(
        reader,
        hub,
        film,
        *FEW,
        "--video-every",
        "5",
        "--set",
        "rollcast.stats_writers=[tensorboard, csv, keeping:Keeping]",
    )
    kept = sorted(path.name for path in (folder / "results" / "filmed" / "kept").iterdir())
    assert kept[0].startswith("model-CartPole-")
    assert "settings-configuration.yaml" in kept
    assert "video-CartPole-episode-000001.mp4" in kept
    events: Any = EventAccumulator(str(folder / "results" / "filmed" / "CartPole"))  # type: ignore[no-untyped-call]
    events.Reload()
    picture = events.Images("Video")[0]
    assert picture.encoded_image_string.startswith(b"GIF89a")
    assert (picture.width, picture.height) == (320, 213)
