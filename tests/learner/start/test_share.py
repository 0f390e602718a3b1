"""Tests what is fetched from a hub, where anyone may put anything, and what leaves a machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rollcast import hub as client
from rollcast.extras import install

from learner.cli.cli import main
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.load import effective_document, load_run_options, to_yaml
from learner.shared.settings.yaml_reader import read_document
from learner.start.share import public_settings, pull
from tests.hub import Hub, hub_running

RUN = {"Pole.onnx": b"model", "Pole/stats.csv": b"step\n", "README.md": b"# Pole\n"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Returns a hub with one shared run."""
    with hub_running() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        running.files["mia/pole"] = dict(RUN)
        yield running


def test_the_files_of_a_run_are_fetched(hub: Hub, tmp_path: Path) -> None:
    """They are the same, byte for byte; files of other names stay there."""
    hub.files["mia/pole"] |= {"model.pkl": b"x", "setup.py": b"x", ".gitattributes": b"x", "Pole/deep/stats.csv": b"x"}
    names, left_out = pull("mia/pole", tmp_path / "new" / "pole")
    assert (names, left_out) == (sorted(RUN), [])
    files = {path.relative_to(tmp_path / "new" / "pole").as_posix() for path in (tmp_path / "new").rglob("*.*")}
    assert files == RUN.keys()
    assert all((tmp_path / "new" / "pole" / name).read_bytes() == data for name, data in RUN.items())


@pytest.mark.parametrize(
    "name",
    ["../Pole.onnx", "/x.onnx", "a/../../b.onnx", "..\\b.onnx", ".hidden/stats.csv", "C:x.onnx", "a\nb.onnx", "a\x9bb.onnx", "../checkpoint.pt", "../README.md"],
)  # fmt: skip
def test_no_name_leaves_the_folder(hub: Hub, tmp_path: Path, name: str) -> None:
    """A name that is no file of a run is not fetched, whatever it ends with."""
    hub.files["mia/pole"][name] = b"x"
    assert pull("mia/pole", tmp_path / "runs" / "pole")[0] == sorted(RUN)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("said", [5, 2**40], ids=["more than it says", "too large"])
def test_sizes_are_bounded(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int) -> None:
    """A file that is too large ends it, also one of which the hub says something else; nothing is left."""
    limits = tuple((names, 1000) for names, _ in client._LARGEST)
    monkeypatch.setattr(client, "_LARGEST", limits)
    hub.files["mia/pole"]["Pole.onnx"] = b"m" * 2000
    hub.said_bytes["Pole.onnx"] = said
    with pytest.raises(UserError, match=r"Pole\.onnx has \d+ bytes; the limit is 1000"):
        pull("mia/pole", tmp_path / "pole")
    assert list(tmp_path.iterdir()) == []


def test_there_are_not_too_many_files(hub: Hub, tmp_path: Path) -> None:
    """The number of files is bounded, too."""
    hub.files["mia/pole"] |= {f"a{number}.onnx": b"" for number in range(client.MAX_FILES)}
    with pytest.raises(UserError, match="the limit is 256"):
        pull("mia/pole", tmp_path / "pole")


@pytest.mark.parametrize(
    ("repository", "code", "said"),
    [
        ("mia/none", ExitCode.NOTHING_TO_RESUME, "Repository not found"),
        ("mia/empty", ExitCode.USAGE, "it has no exported model"),
        ("pole", ExitCode.USAGE, "write USER/NAME"),
        ("../pole", ExitCode.USAGE, "write USER/NAME"),
        ("mia/pole/x", ExitCode.USAGE, "write USER/NAME"),
    ],
)
def test_what_cannot_be_fetched_is_one_line(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, repository: str, code: ExitCode, said: str
) -> None:
    """The command ends with one line and its own code."""
    hub.files["mia/empty"] = {"README.md": b""}
    assert main(["pull", repository, str(tmp_path / "pole")]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_an_existing_folder_is_not_replaced(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is fetched over what is there."""
    assert main(["pull", "mia/pole", str(tmp_path)]) == ExitCode.NOT_SAVED
    assert "it exists: name another folder" in capsys.readouterr().err


def test_a_hub_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line with the code of an address that does not answer."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UserError, match="the hub, of mia/pole: ConnectError") as caught:
        pull("mia/pole", tmp_path / "pole")
    assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_a_missing_client_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["pull", "mia/pole", str(tmp_path / "pole")]) == ExitCode.MISSING_EXTRA
    assert install("hub") in capsys.readouterr().err


HOSTILE = """
behaviors:
  Pole:
    trainer_type: "os:abort"
    max_steps: 5
    init_path: /etc/passwd
    reward_signals: {gail: {demo_path: "../secret.demo", strength: 0.5}}
env_settings: {env_path: /bin/sh, env_args: [-c, id], seed: 3}
checkpoint_settings: {results_dir: /tmp}
rollcast:
  callbacks: ["os:abort"]
  stats_writers: [wandb]
  insecure: true
  address: 0.0.0.0:1
  target_return: 7.0
"""


def test_settings_of_strangers_start_nothing(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What names code, files or addresses is left out and named; the rest is a run file."""
    hub.files["mia/pole"]["configuration.yaml"] = HOSTILE.encode()
    assert main(["pull", "mia/pole", str(tmp_path / "pole")]) == ExitCode.OK
    assert read_document(tmp_path / "pole" / "configuration.yaml").tree == {
        "behaviors": {"Pole": {"max_steps": 5, "reward_signals": {"gail": {"strength": 0.5}}}},
        "env_settings": {"seed": 3},
        "rollcast": {"target_return": 7.0},
    }
    said = capsys.readouterr().err
    assert "behaviors.Pole.trainer_type" in said
    assert "rollcast.callbacks" in said
    hub.files["mia/pole"]["configuration.yaml"] = b"a: !!python/object:os.abort {}\n"
    assert main(["pull", "mia/pole", str(tmp_path / "other")]) == ExitCode.OK
    assert not (tmp_path / "other" / "configuration.yaml").exists()


def test_nothing_of_the_machine_is_in_shared_settings(tmp_path: Path) -> None:
    """A run file of a whole run keeps what it learns by, and nothing that names files, addresses or accounts."""
    items = ["rollcast.certs=null", "behaviors.Pole.trainer_type=sac", f"behaviors.Pole.init_path={tmp_path}/a.pt"]
    items += ["behaviors.Pole.hyperparameters.batch_size=77", "rollcast.lockstep.actors=2"]
    flags = {"results-dir": str(tmp_path), "env": str(tmp_path / "Build"), "seed": "4", "address": "127.0.0.1:77"}
    whole = effective_document(load_run_options(None, cli=flags, set_items=items, environ={}))
    shared = public_settings(whole)
    text = to_yaml(shared)
    assert public_settings(shared) == shared
    assert str(tmp_path) not in text
    assert "127.0.0.1" not in text
    (tmp_path / "run.yaml").write_text(text)
    options = load_run_options(tmp_path / "run.yaml", cli={}, set_items=[], environ={}).options
    before: Any = whole["behaviors"]
    assert options.behaviors["Pole"].model_dump(mode="json") == {**before["Pole"], "init_path": None}
    assert (options.env_settings.seed, options.rollcast.lockstep) != (-1, None)


def test_no_key_of_shared_settings_names_code() -> None:
    """Keys that name classes are left out as values are, with what is below them; names of behaviors are no code."""
    signals = {"extrinsic": {"gamma": 0.9}, "mine:Upright": {"gamma": 0.9}}
    tree: Any = {
        "behaviors": {"A:B": {"reward_signals": signals, "companions": {"mine:World": {"data": "experience"}}}}
    }
    left = {"reward_signals": {"extrinsic": {"gamma": 0.9}}, "companions": {}}
    assert public_settings(tree) == {"behaviors": {"A:B": left}}
