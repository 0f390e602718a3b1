"""Tests which runs are runs of one configuration."""

import os
from pathlib import Path

import pytest

from learner.cli.run_groups import Group, Member, grouped, read_settings
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.curves import RETURN_KEY, read_curves
from learner.shared.runfolder.names import CONFIGURATION
from tests.learner.start.run_folders import trained_run

RATE = "behaviors.Walker.hyperparameters.learning_rate"
BATCH = "behaviors.Walker.hyperparameters.batch_size"


def member(folder: Path) -> Member:
    """Returns a run of one behavior with its settings."""
    (curve,) = read_curves(folder, RETURN_KEY)
    return Member(folder, curve, read_settings(folder, curve.behavior))


def runs(results: Path, *parts: tuple[str, int, tuple[str, ...]], trainer: str = "ppo") -> list[Member]:
    """Makes runs of a name, a seed and settings each."""
    return [
        member(trained_run(results, name, {"Walker": [1.0]}, *settings, seed=seed, trainer=trainer))
        for name, seed, settings in parts
    ]


def shown(groups: list[Group]) -> dict[str, list[str]]:
    """Returns the names of the runs by label."""
    return {group.label: [member.curve.run_id for member in group.members] for group in groups}


def test_seeds_of_one_configuration_are_a_group(tmp_path: Path) -> None:
    """Seed, name, address and what only watches or saves a run make no difference; other settings do."""
    watched = ("rollcast.stats_writers=[csv]", "behaviors.Walker.keep_checkpoints=9", "rollcast.checkpoint_seconds=5")
    members = runs(
        tmp_path,
        ("base-1", 1, ()), ("slow_s1", 1, (f"{RATE}=1e-5",)), ("base-2", 2, watched), ("slow_s2", 2, (f"{RATE}=1e-5",)),
    )  # fmt: skip
    groups = grouped(members, "settings")
    assert shown(groups) == {"base": ["base-1", "base-2"], "slow": ["slow_s1", "slow_s2"]}
    assert [dict(group.differences) for group in groups] == [
        {"hyperparameters.learning_rate": "0.0003"},
        {"hyperparameters.learning_rate": "1e-05"},
    ]


def test_groups_without_names_are_called_by_their_settings(tmp_path: Path) -> None:
    """If names do not tell groups apart, settings do, as long as there are few."""
    few = [("a", 1, ()), ("b", 2, ()), ("c", 1, (f"{RATE}=1e-5",)), ("d", 2, (f"{RATE}=1e-5", f"{BATCH}=64"))]
    assert list(shown(grouped(runs(tmp_path / "few", *few), "settings"))) == [
        "batch_size=1024, learning_rate=0.0003",
        "batch_size=1024, learning_rate=1e-05",
        "batch_size=64, learning_rate=1e-05",
    ]
    many = (f"{RATE}=1e-5", f"{BATCH}=64", "behaviors.Walker.hyperparameters.num_epoch=9")
    assert list(shown(grouped(runs(tmp_path / "many", ("a", 1, ()), ("b", 2, ()), ("c", 1, many)), "settings"))) == [
        "a ...",
        "c ...",
    ]


@pytest.mark.parametrize(
    ("name", "stem"),
    [("ppo-1", "ppo"), ("ppo_seed3", "ppo"), ("ppo.s12", "ppo"), ("lr-3e4", "lr-3e4"), ("ppo-seed-4", "ppo"), ("ppo1", "ppo1"), ("7", "7"), ("ppo", "ppo"),
     ("maps-2", "maps")],
)  # fmt: skip
def test_names_end_before_their_number(tmp_path: Path, name: str, stem: str) -> None:
    """With `--by name`, runs whose names differ in the number at the end are a group."""
    (curve,) = read_curves(trained_run(tmp_path, name, {"Walker": [1.0]}), RETURN_KEY)
    assert list(shown(grouped([Member(tmp_path / name, curve, {})], "name"))) == [stem]


def test_each_run_can_stand_alone(tmp_path: Path) -> None:
    """With `--by run`, equal names in different folders are different runs."""
    members = [*runs(tmp_path / "a", ("base", 1, ())), *runs(tmp_path / "b", ("base", 2, ()))]
    assert shown(grouped(members, "run")) == {"base": ["base"], "base (2)": ["base"]}


def test_a_setting_makes_groups(tmp_path: Path) -> None:
    """With a dotted path, its values are the groups, whatever else differs; a run without the setting has none."""
    members = [
        *runs(tmp_path, ("a", 1, (f"{RATE}=1e-5",)), ("b", 2, (f"{BATCH}=64",))),
        *runs(tmp_path, ("c", 3, ()), trainer="sac"),
    ]
    assert shown(grouped(members, "trainer_type")) == {"trainer_type=ppo": ["a", "b"], "trainer_type=sac": ["c"]}
    assert shown(grouped(members, "hyperparameters.num_epoch")) == {"num_epoch=3": ["a", "b"], "num_epoch=-": ["c"]}
    assert shown(grouped(members, "env_settings.seed")) == {"seed=1": ["a"], "seed=2": ["b"], "seed=3": ["c"]}
    with pytest.raises(UserError, match=r"did you mean hyperparameters.learning_rate") as caught:
        grouped(members, "hyperparameters.learning_rat")
    assert caught.value.exit_code is ExitCode.USAGE


def test_long_values_stay_different(tmp_path: Path) -> None:
    """Values that are equal up to where a label is cut are different groups with different labels."""
    long = "p" * 60
    members = runs(
        tmp_path,
        *((name, 1, (f"behaviors.Walker.init_path={long}{name}.pt",)) for name in ("a", "b")),
    )  # fmt: skip
    for by in ("settings", "init_path"):
        labels = list(shown(grouped(members, by)))
        assert len(labels) == 2
        assert max(map(len, labels)) <= 45


HOSTILE = [
    b"",
    b"- a",
    b"a: &a [*a]",
    b"a: !!python/object/apply:os.system [ls]",
    b"\xff\xfe\x00",
    b"{" * 1100,
    b"behaviors: " + b"9" * 5000,
    b"a: [1, 2\n",
]


@pytest.mark.parametrize("content", HOSTILE)
def test_damaged_settings_are_one_line(tmp_path: Path, content: bytes) -> None:
    """Settings that are no map of plain values are refused in one line that names the file."""
    folder = trained_run(tmp_path, "run", {"Walker": [1.0]})
    (folder / CONFIGURATION).write_bytes(content)
    with pytest.raises(UserError, match=CONFIGURATION) as caught:
        read_settings(folder, "Walker")
    assert "\n" not in caught.value.message


def test_settings_that_are_not_there(tmp_path: Path) -> None:
    """Without settings, and with a pipe in their place, the error says how to do without them."""
    folder = trained_run(tmp_path, "run", {"Walker": [1.0]})
    (folder / CONFIGURATION).unlink()
    with pytest.raises(UserError, match="--by name and --by run"):
        read_settings(folder, "Walker")
    os.mkfifo(folder / CONFIGURATION)
    with pytest.raises(UserError, match="--by name and --by run"):
        read_settings(folder, "Walker")


def test_any_shape_of_settings_is_grouped(tmp_path: Path) -> None:
    """Blocks in the place of values, and control characters, make groups and no error."""
    for number, text in enumerate(["behaviors: 3", "behaviors: {Walker: [1]}", 'rollcast: {"a\\eb": {c: "\\e[2J"}}']):
        folder = trained_run(tmp_path, f"run{number}x", {"Walker": [1.0]})
        (folder / CONFIGURATION).write_text(text)
    groups = grouped([member(tmp_path / f"run{number}x") for number in range(3)], "settings")
    assert [group.label for group in groups] == ["run0x", "run1x", "run2x"]
    assert groups[2].differences == {"behaviors": "-", "behaviors.Walker": "-", "rollcast.a\\x1bb.c": "\\x1b[2J"}
