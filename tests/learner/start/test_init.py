"""Tests `rollcast init` and the schema of run files."""

import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema.exceptions import best_match

from learner.cli.cli import main
from learner.shared.exits import ExitCode
from learner.shared.settings.schema import run_file_schema
from learner.start.init import SCHEMA_FILE, examples, schema_text

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "learner" / "run_files"
RUN_FILES = sorted(
    [
        *EXAMPLES.glob("*.yaml"),
        *(ROOT / "deploy").rglob("*.yaml"),
        *(ROOT / "tests" / "tools" / "gates").rglob("*.yaml"),
    ]
)
VALIDATOR = jsonschema.Draft202012Validator(run_file_schema())


def refused(document: dict[str, Any]) -> list[str]:
    """Returns the places of a document that the schema refuses, the innermost that fits best."""
    errors = VALIDATOR.iter_errors(document)
    return [str(best_match([error]).json_path) for error in errors]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", sorted(examples()))
def test_init_writes_an_example_that_can_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The written run file has comments, names its schema, and passes `check-config` without a warning."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", name]) == 0
    assert f"rollcast serve {name}.yaml" in capsys.readouterr().out
    first, second, *_ = (tmp_path / f"{name}.yaml").read_text().splitlines()
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert examples()[name].endswith(".")
    assert second.lstrip("# ").startswith(examples()[name]) or examples()[name].startswith(second.lstrip("# "))
    assert (tmp_path / SCHEMA_FILE).read_text() == schema_text()
    assert main(["check-config", f"{name}.yaml"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_init_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An existing file, by default cartpole.yaml, is kept; an unknown example is refused with the known ones."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(examples()) >= 13
    (tmp_path / "cartpole.yaml").write_text("mine")
    assert main(["init"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: cartpole.yaml exists; move it, or run init in another folder\n"
    os.mkfifo(SCHEMA_FILE)
    assert main(["init", "lunarlander"]) == ExitCode.NOT_SAVED
    assert f"{SCHEMA_FILE}: not a regular file" in capsys.readouterr().err
    assert not Path("lunarlander.yaml").exists()
    assert (tmp_path / "cartpole.yaml").read_text() == "mine"
    assert main(["init", "../cartpole"]) == ExitCode.USAGE
    assert "there is no example '../cartpole'; the examples are bipedalwalker, cartpole, " in capsys.readouterr().err
    assert main(["init", "connect_four"]) == ExitCode.USAGE
    assert capsys.readouterr().err.endswith("; did you mean 'connect-four'?\n")


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_the_schema_takes_every_run_file(path: Path) -> None:
    """The schema accepts every run file that `serve` accepts."""
    for document in yaml.safe_load_all(path.read_text()):  # others, as of Kubernetes, have several
        if "behaviors" in document:
            assert list(refused(document)) == []


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"rollcast": {"adress": "127.0.0.1:1"}}, ["$.rollcast"]),
        ({"behaviors": {"A": {"hyperparameters": {"tau": 0.01}}}}, ["$.behaviors.A.hyperparameters"]),
        ({"behaviors": {"A": {"trainer_type": "sac", "hyperparameters": {"tau": 0.01}}}}, []),
        ({"behaviors": {"A": {"trainer_type": "mine", "hyperparameters": {"mine": 1}}}}, []),
        ({"behaviors": {"A": {"max_steps": 0}}}, ["$.behaviors.A.max_steps"]),
        ({"behaviors": {"A": {"max_steps": 5e5, "framework": "pytorch"}}}, []),
        ({"behaviors": {"A": {"reward_signals": {"mine": {"any": 1}, "gail": {"demo_path": "x"}}}}}, []),
        ({"behaviors": {"A": {"reward_signals": {"rnd": {"gama": 1}}}}}, ["$.behaviors.A.reward_signals.rnd"]),
        ({"rollcast": {"queue_bytes": "64 MiB", "torch_threads": 2}}, []),
        ({"rollcast": {"torch_threads": 2000}}, ["$.rollcast.torch_threads"]),
        ({"environment_parameters": {"a": 1.5, "b": {"sampler_type": "gaussian", "sampler_parameters": {"mean": 2}}}}, []),
        (
            {"environment_parameters": {"a": {"curriculum": [{"name": "x", "value": 1}, {"name": "y", "value": {"sampler_type": "uniform", "sampler_parameters": {}}}]}}},
            [],
        ),
        (
            {"environment_parameters": {"a": {"sampler_type": "uniform", "sampler_parameters": {"mean": 1}}}},
            ["$.environment_parameters.a.sampler_parameters"],
        ),
    ],
)  # fmt: skip
def test_the_schema_knows_what_may_be_written(document: dict[str, Any], places: list[str]) -> None:
    """The schema marks wrong keys and numbers, and accepts short forms and plug-ins."""
    assert list(refused(document)) == places
