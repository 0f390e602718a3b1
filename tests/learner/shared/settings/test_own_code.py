"""Tests code of the user that a run file names as `module:Class`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.hyperparameters import OWN_TRAINERS, PPOHyperparameters
from learner.shared.settings.load import effective_document, load_run_options, to_yaml
from learner.shared.settings.rules import missing_code, sources_of_code
from learner.training.trainers import registry

MODULE = """
from learner.shared.settings.hyperparameters import PPOHyperparameters
from learner.shared.settings.rewards import RewardSignalSettings
from learner.training.trainers.ppo.trainer import PPOTrainer
from torch import nn

class DayHyperparameters(PPOHyperparameters):
    hours: int = 24

class Day(PPOTrainer):
    settings_model = DayHyperparameters

class Plain(PPOTrainer):
    pass

class Sunny:
    class settings_model(RewardSignalSettings):
        noon: int = 12

class Layers(nn.Module):
    pass

NUMBER = 3
"""
RUN = """\
behaviors:
  A:
    trainer_type: {trainer}
    network_settings:
      body: {body}
      vis_encode_type: {encoder}
      policy: {policy}
    reward_signals:
      extrinsic: {{}}
      {signal}: {{}}
rollcast:
  callbacks: [{callback}]
"""
GOOD = {
    "trainer": "{0}:Day",
    "body": "{0}:Layers",
    "encoder": "{0}:Layers",
    "policy": "null",
    "signal": '"{0}:Sunny"',
    "callback": "{0}:Day",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Writes a module into a folder, of the folder's name, and works in another one."""
    folder = tmp_path / f"daytime_{tmp_path.name.replace('-', '_')}"
    folder.mkdir()
    (folder / f"{folder.name}.py").write_text(MODULE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder
    sys.modules.pop(folder.name, None)


def run_file(folder: Path, name: str = "run.yaml", **changes: str) -> Path:
    """Writes a run file that names the module, with changes to `GOOD`."""
    path = folder / name
    path.write_text(RUN.format(**{key: text.format(folder.name) for key, text in {**GOOD, **changes}.items()}))
    return path


def missing(path: Path) -> list[str]:
    """Returns what cannot be used, as the checks before a start find it."""
    try:
        loaded = load_run_options(path)
    except UserError as error:
        return [error.message] if error.exit_code is ExitCode.RUN_FILE else []
    return [error.message for error in missing_code(loaded.options, loaded.places)]


def test_classes_beside_the_run_file_are_found(folder: Path) -> None:
    """They have their settings, are in the resolved settings by name, and in the records by file."""
    loaded = load_run_options(run_file(folder))
    assert list(missing_code(loaded.options, loaded.places)) == []
    settings: Any = loaded.options.behaviors["A"]
    assert settings.hyperparameters.hours == 24
    assert settings.traits == PPOHyperparameters.traits
    assert settings.reward_signals.active()[f"{folder.name}:Sunny"].noon == 12
    again = folder / "again.yaml"
    again.write_text(to_yaml(effective_document(loaded)))
    assert effective_document(load_run_options(again)) == effective_document(loaded)
    assert loaded.places[f"behaviors.A.reward_signals.{folder.name}:Sunny"].startswith(f"{folder / 'run.yaml'}:10: ")
    files = {each["setting"]: (each["file"], len(each["sha256"])) for each in sources_of_code(loaded.options)}
    assert set(files.values()) == {(str(folder / f"{folder.name}.py"), 64)}
    assert len(files) == 5


def test_a_trainer_has_the_settings_of_the_one_that_it_extends(folder: Path) -> None:
    """So has every built-in one those of the table that is read without torch."""
    loaded = load_run_options(run_file(folder, trainer="{0}:Plain"))
    assert type(loaded.options.behaviors["A"].hyperparameters) is PPOHyperparameters
    for name, own in OWN_TRAINERS.items():
        assert registry.find(name).settings_model is own.settings_model  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "line", "said"),
    [
        (
            {"trainer": "nowhere_of_a_test:Day"},
            3,
            "trainer_type names 'nowhere_of_a_test:Day', which cannot be imported: ",
        ),
        ({"trainer": "{0}:Night"}, 3, "has no attribute 'Night'"),
        ({"trainer": "{0}:NUMBER"}, 3, "which is not a function or class"),
        ({"trainer": "{0}:Layers"}, 3, "a class that does not extend learner.training.trainers.base.Trainer"),
        ({"signal": '"{0}:Cloudy"'}, 10, "has no attribute 'Cloudy'"),
        ({"body": "{0}:Brick"}, 5, "network_settings.body names "),
        ({"body": "{0}:Sunny"}, 5, "a class that does not extend torch.nn.modules.module.Module"),
        ({"encoder": "{0}:Brick"}, 6, "network_settings.vis_encode_type names "),
        ({"policy": "{0}:Layers"}, 7, "does not extend learner.training.networks.policy.PolicyNetwork"),
        ({"callback": "{0}:call"}, 12, "rollcast.callbacks names "),
        ({"body": "brick"}, 5, "network_settings.body: must be module:Class"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_line(folder: Path, changes: Any, line: int, said: str) -> None:
    """A missing module, a missing class and a wrong one are errors of the run file."""
    path = run_file(folder, **changes)
    (message,) = missing(path)
    assert message.startswith(f"{path}:{line}: ")
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("where", ["in the folder", "above it"])
def test_code_of_a_run_folder_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Neither is its folder searched, nor is a module in it imported from elsewhere: it may come from someone else."""
    (folder / f"{folder.name}.py").write_text("raise SystemExit('it was run')")
    changes = {"trainer": f"{folder.name}.{folder.name}:Day"} if where == "above it" else {}
    path = run_file(folder, "configuration.yaml", **changes)
    monkeypatch.chdir(folder if where == "in the folder" else folder.parent)
    with pytest.raises(UserError, match=r"is beside the configuration\.yaml of a run") as caught:
        load_run_options(path)
    assert "it was run" not in caught.value.message
    monkeypatch.chdir(folder.parent / "elsewhere")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.startswith(str(folder.parent))])
    with pytest.raises(UserError, match=f"No module named '{folder.name}"):
        load_run_options(path)
