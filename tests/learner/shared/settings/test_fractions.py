"""Tests a fraction in every setting that is a whole number: never rounded in silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import Path, SettingsModel
from learner.shared.settings.hyperparameters import built_trainers, hyperparameters_of
from learner.shared.settings.lenient import STOCK_KEYS
from learner.shared.settings.load import load_run_options
from learner.shared.settings.network import MemorySettings, NetworkSettings, TowerSettings
from learner.shared.settings.options import RunOptions
from learner.shared.settings.slots import scalar_paths, slot_at
from learner.shared.settings.trainer import BehavioralCloningSettings, SelfPlaySettings, TrainerSettings

from .conftest import WriteRun

_BEHAVIOR: Path = ("behaviors", "A")
_BESIDE = {"behavioral_cloning": ", demo_path: d", "gail": ", demo_path: d", "num_envs": ", env_path: Build"}
"""What a block, or a key, cannot be without."""


def _whole(model: type[SettingsModel], place: Path) -> Iterator[Path]:
    """Yields the paths below a model of what is a whole number and nothing else."""
    for path in scalar_paths(model):
        slot = slot_at(model, {}, path)
        if slot is not None and int in slot.types and float not in slot.types:
            yield (*place, *path)


def _all() -> Iterator[tuple[str, Path]]:
    """Yields each whole number of a run file, with the trainer that has it."""
    for path in _whole(RunOptions, ()):
        if path[0] != "default_settings":
            yield "ppo", path
    for path in _whole(TrainerSettings, _BEHAVIOR):
        yield "ppo", path
    blocks: dict[str, type[SettingsModel]] = {
        "network_settings": NetworkSettings,
        "network_settings.memory": MemorySettings,
        "network_settings.tower": TowerSettings,
        "self_play": SelfPlaySettings,
        "behavioral_cloning": BehavioralCloningSettings,
    }
    for name, model in blocks.items():
        for path in _whole(model, (*_BEHAVIOR, *name.split("."))):
            yield "ppo", path
    for trainer in built_trainers(lambda _: True):
        hyper = hyperparameters_of(trainer)
        assert hyper is not None
        for path in _whole(hyper, (*_BEHAVIOR, "hyperparameters")):
            yield trainer, path


CASES = sorted(set(_all()))


def _file(trainer: str, path: Path, value: str) -> str:
    """Returns a run file with one value."""
    text = f"{path[-1]}: {value}{_BESIDE.get(path[-1], '')}"
    for key in reversed(path[:-1]):
        text = f"{key}: {{{text}{_BESIDE.get(key, '')}}}"
        if key == _BEHAVIOR[-1] and path[:2] == _BEHAVIOR:
            text = text.replace(f"{key}: {{", f"{key}: {{trainer_type: {trainer}, ", 1)
    return f"{text}\n" if path[0] == "behaviors" else f"behaviors: {{A: {{}}}}\n{text}\n"


def test_the_table_has_all_kinds() -> None:
    """Every block that has whole numbers is walked."""
    names = {".".join(path) for _, path in CASES}
    expected = {"max_steps", "hyperparameters.batch_size", "hyperparameters.burn_in", "network_settings.hidden_units"}
    assert {f"behaviors.A.{name}" for name in expected} | {"rollcast.trainers", "env_settings.base_port"} <= names


@pytest.mark.parametrize(("trainer", "path"), CASES, ids=[f"{each[0]}-{'.'.join(each[1])}" for each in CASES])
def test_a_fraction_is_told(write_run: WriteRun, trainer: str, path: Path) -> None:
    """A run file of ML-Agents trains on as there, with a warning; what ML-Agents does not have is refused."""
    place, run = ".".join(path), write_run(_file(trainer, path, "4.5"))
    has_stock = path[-1] in STOCK_KEYS and path[0] != "rollcast"
    if has_stock:
        warnings = load_run_options(run).warnings
        assert any(f"{place}: is 4.5: the fraction is dropped" in line for line in warnings), warnings
        return
    with pytest.raises(UserError) as caught:
        load_run_options(run)
    lines = [caught.value.message, *caught.value.details]
    assert any(f"{place}: must be a whole number, got 4.5" in line for line in lines), lines
    assert caught.value.exit_code is ExitCode.RUN_FILE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"set_items": ["behaviors.A.network_settings.hidden_units=64.5"]}, "--set: behaviors.A.network_settings.hidden_units"),
        ({"set_items": ["behaviors.A.network_settings.hidden_units=[64.5, 8]"]}, "--set: behaviors.A.network_settings.hidden_units"),
        ({"cli": {"seed": "7.5"}}, "--seed: env_settings.seed"),
        ({"environ": {"ROLLCAST_TRAINERS": "1.5"}}, "env ROLLCAST_TRAINERS: rollcast.trainers"),
    ],
)  # fmt: skip
def test_a_fraction_beside_the_file_is_refused(write_run: WriteRun, given: dict[str, object], said: str) -> None:
    """Flags, --set and variables are strict, as ML-Agents' own flags are."""
    with pytest.raises(UserError, match="must be a whole number") as caught:
        load_run_options(write_run("behaviors: {A: {trainer_type: ppo}}\n"), **given)  # type: ignore[arg-type]
    assert caught.value.message.startswith(said)
