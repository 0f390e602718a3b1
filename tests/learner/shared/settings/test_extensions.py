"""Tests settings of packages in check-config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.load import load_run_options
from tests.learner.installed import install

from .conftest import WriteRun

MODULE = """
from pydantic import field_serializer, model_validator
from learner.shared.settings.hyperparameters import PPOHyperparameters
from learner.shared.settings.rewards import RewardSignalSettings

def failing(base):
    class Failing(base):
        @model_validator(mode="after")
        def _check(self):
            raise RuntimeError("validator\\n  broken")
    return Failing

def unresolved(base):
    return type("Unresolved", (base,), {"__annotations__": {"k": "NoSuchType"}, "__module__": __name__})

def unwritable(base):
    class Unwritable(base):
        k: int = 1
        @field_serializer("k")
        def _write(self, value):
            raise RuntimeError("serializer broken")
    return Unwritable

def needing(base):
    class Needing(base):
        need: int
    return Needing

class Named:
    def __init__(self, model):
        self.settings_model = model
    def __call__(self, *given):
        raise RuntimeError("is not made here")

class Raising(Named):
    def __init__(self):
        pass
    @property
    def settings_model(self):
        raise RuntimeError("property broken")

s_failing, t_failing = (Named(failing(base)) for base in (RewardSignalSettings, PPOHyperparameters))
s_unresolved, t_unresolved = (Named(unresolved(base)) for base in (RewardSignalSettings, PPOHyperparameters))
s_unwritable, t_unwritable = (Named(unwritable(base)) for base in (RewardSignalSettings, PPOHyperparameters))
s_needing, t_needing = (Named(needing(base)) for base in (RewardSignalSettings, PPOHyperparameters))
s_raising = t_raising = Raising()
s_number = t_number = Named(int)
plain = Named(RewardSignalSettings)
"""
KINDS = ("failing", "unresolved", "unwritable", "needing", "raising", "number")
HIDING = ("active", "model_config", "model_fields", "model_for", "copy", "_under")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "rollcast.reward_signals": {
            **{kind: f"settings_of_a_test:s_{kind}" for kind in KINDS},
            **dict.fromkeys((*HIDING, "plain"), "settings_of_a_test:plain"),
        },
        "rollcast.trainers": {kind: f"settings_of_a_test:t_{kind}" for kind in KINDS},
    }
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "settings_of_a_test", MODULE, points)))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("failing", "RuntimeError: validator broken; its code must be repaired"),
        ("unresolved", "'NoSuchType' is not defined"),
        ("unwritable", "serializer broken"),
        ("needing", "need: is required but missing"),
        ("raising", "RuntimeError: property broken"),
        ("number", "must be a subclass of learner.shared.settings."),
    ],
)
@pytest.mark.parametrize("place", ["reward_signals: {%s: {}}", "trainer_type: %s"])
def test_settings_that_fail_are_one_line(place: str, kind: str, said: str, write_run: WriteRun) -> None:
    """Failing validators, annotations and properties of a package are errors that name it."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(f"behaviors: {{A: {{{place % kind}}}}}\n"))
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert said in caught.value.message
    assert f"names '{kind}'" in caught.value.message or kind == "needing"
    assert "\n" not in caught.value.message


def test_what_a_trainer_requires_is_missing_in_its_block(write_run: WriteRun) -> None:
    """A required key of a trainer is reported in its block, even if the block is absent."""
    with pytest.raises(UserError, match=r"behaviors\.A\.hyperparameters\.need: is required but missing"):
        load_run_options(write_run("behaviors: {A: {trainer_type: needing}}\n"))


@pytest.mark.parametrize("name", HIDING)
def test_a_signal_cannot_hide_what_the_block_is_made_of(name: str, write_run: WriteRun) -> None:
    """Reserved and private names of signals are refused."""
    with pytest.raises(UserError, match=f"reward_signals names '{name}', which is reserved") as caught:
        load_run_options(write_run(f"behaviors: {{A: {{reward_signals: {{{name}: {{}}}}}}}}\n"))
    assert caught.value.exit_code is ExitCode.RUN_FILE


def test_settings_without_fault_are_built(write_run: WriteRun) -> None:
    """Wrong values are reported at their place, and right ones reach the package."""
    run = "behaviors: {A: {reward_signals: {plain: {strength: %s}}}}\n"
    signals: Any = load_run_options(write_run(run % "2.5")).options.behaviors["A"].reward_signals
    assert signals.plain.strength == 2.5
    with pytest.raises(UserError, match=r"A\.reward_signals\.plain\.strength: must be a finite number"):
        load_run_options(write_run(run % "much"))
