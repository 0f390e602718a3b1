"""Tests the layers over the run file: secrets, environment, flags and ``--set``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.base import Value
from learner.shared.settings.layers import FLAGS, flag_name, variables
from learner.shared.settings.load import load_run_options
from learner.shared.settings.options import RunOptions
from learner.shared.settings.slots import slot_at

from .conftest import WriteRun

RUN = "behaviors: {Ball: {trainer_type: ppo}, My.Ball: }\nrollcast: {max_sessions: 1}\n"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Makes a secrets directory as Kubernetes mounts it, with one setting and links."""
    folder = tmp_path / "secrets"
    (folder / "..data").mkdir(parents=True)
    (folder / "other_service_key").write_text("unrelated")
    (folder / "rollcast_max_sessions").write_text("2\n")
    return folder


def test_each_layer_wins_over_the_one_below(write_run: WriteRun, secrets: Path) -> None:
    """Each layer overrides the ones below, with its source."""
    path = write_run(RUN)
    environ: dict[str, str] = {}
    cli: dict[str, object] = {}
    seen: list[tuple[int, str]] = []

    def look(*set_items: str) -> None:
        loaded = load_run_options(path, cli=cli, set_items=set_items, environ=environ)
        seen.append((loaded.options.rollcast.max_sessions, loaded.sources["rollcast.max_sessions"]))

    look()
    environ["ROLLCAST_SECRETS_DIR"] = str(secrets)
    look()
    environ["ROLLCAST_MAX_SESSIONS"] = "3"
    look()
    cli["max_sessions"] = 4
    look()
    look("rollcast.max_sessions=5")
    assert seen == [
        (1, "yaml"),
        (2, "secret rollcast_max_sessions"),
        (3, "env ROLLCAST_MAX_SESSIONS"),
        (4, "--max-sessions"),
        (5, "--set"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "dotted", "expected"),
    [
        ("ROLLCAST_ENV_SETTINGS__SEED", "7", "env_settings.seed", 7),
        ("ROLLCAST_CHECKPOINT_SETTINGS__RUN_ID", "007", "checkpoint_settings.run_id", "007"),
        ("ROLLCAST_TARGET_RETURN", "none", "rollcast.target_return", None),
        ("ROLLCAST_TARGET_RETURN", "4.5e2", "rollcast.target_return", 450.0),
        ("ROLLCAST_DEBUG", "true", "debug", True),
        ("ROLLCAST_TORCH_SETTINGS__DEVICE", "cpu", "torch_settings.device", "cpu"),
        ("ROLLCAST_QUEUE_BYTES", "64 MiB", "rollcast.queue_bytes", 64 * 2**20),
        ("ROLLCAST_CHECKPOINT_SETTINGS__RESUME", "auto", "checkpoint_settings.resume", "auto"),
        ("ROLLCAST_MAX_SESSIONS", "", "rollcast.max_sessions", 1),
    ],
)
def test_variables_set_single_values(write_run: WriteRun, name: str, value: str, dotted: str, expected: object) -> None:
    """A variable is read by the type of its setting, and an empty one is ignored."""
    value_now: object = load_run_options(write_run(RUN), environ={name: value}).options.model_dump()
    for key in dotted.split("."):
        assert isinstance(value_now, dict)
        value_now = value_now[key]
    assert expected == value_now


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ROLLCAST_ADRESS", "did you mean 'ROLLCAST_ADDRESS'?"),
        ("ROLLCAST_ENV_SETTINGS__SEDE", "did you mean 'ROLLCAST_ENV_SETTINGS__SEED'?"),
        ("ROLLCAST_BEHAVIORS__BALL__MAX_STEPS", "--set behaviors.KEY=VALUE"),
        ("ROLLCAST_PORTS", "names no setting"),
        ("ROLLCAST_", "names no setting"),
    ],
)
def test_a_misspelt_variable_is_an_error(write_run: WriteRun, name: str, expected: str) -> None:
    """An unknown variable is refused with the nearest name."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(RUN), environ={name: "1"})
    assert name in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROLLCAST_BIND", "0.0.0.0"),  # noqa: S104 - compose's own variable
        ("ROLLCAST_ACTOR_ADDRESS", "x"),
        ("PATH", "/bin"),
        ("ROLLCAST_LEARNER_SERVICE_HOST", "10.0.0.1"),
        ("ROLLCAST_LEARNER_SERVICE_PORT_GRPC", "50051"),
        ("ROLLCAST_LEARNER_PORT", "tcp://10.0.0.1:50051"),
        ("ROLLCAST_LEARNER_PORT_50051_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_of_others_are_left_alone(write_run: WriteRun, name: str, value: str) -> None:
    """Variables of compose, actors and Kubernetes' service links are ignored."""
    assert load_run_options(write_run(RUN), environ={name: value}).options.rollcast.max_sessions == 1


def test_no_variable_is_the_name_of_two_settings() -> None:
    """No short name of the rollcast block equals another block."""
    paths = list(variables().values())
    assert len(paths) == len(set(paths)) > 40


def test_a_wrong_value_names_where_it_came_from(write_run: WriteRun, secrets: Path) -> None:
    """The message names the variable or flag, and hides the value of a secret."""
    (secrets / "rollcast_max_sessions").write_text("hunter2")
    environ = {"ROLLCAST_SECRETS_DIR": str(secrets), "ROLLCAST_LEASE_SECONDS": "-1"}
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(RUN), environ=environ, cli={"seed": "soon"})
    lines = "\n".join(caught.value.details)
    assert "env ROLLCAST_LEASE_SECONDS: rollcast.lease_seconds: must be greater than or equal to 0.1, got -1.0" in lines
    assert "--seed: env_settings.seed: must be a finite number, got 'soon'" in lines
    assert "secret rollcast_max_sessions: rollcast.max_sessions" in lines
    assert "hunter2" not in lines


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 70_000, None])
def test_a_secret_that_is_no_short_text_is_an_error(write_run: WriteRun, secrets: Path, content: bytes | None) -> None:
    """A secret that is no small text file is an error."""
    path = secrets / "rollcast_max_sessions"
    path.unlink()
    os.mkfifo(path) if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=r"secret .*rollcast_max_sessions"):
        load_run_options(write_run(RUN), environ={"ROLLCAST_SECRETS_DIR": str(secrets)})


def test_a_misspelt_secret_and_a_missing_directory_are_errors(write_run: WriteRun, secrets: Path) -> None:
    """An unknown secret and a missing directory are errors."""
    (secrets / "rollcast_max_session").write_text("3")
    with pytest.raises(UserError, match="did you mean 'ROLLCAST_MAX_SESSIONS'"):
        load_run_options(write_run(RUN), environ={"ROLLCAST_SECRETS_DIR": str(secrets)})
    with pytest.raises(UserError, match=r"ROLLCAST_SECRETS_DIR: .* cannot be read"):
        load_run_options(write_run(RUN), environ={"ROLLCAST_SECRETS_DIR": str(secrets / "none")})


def test_set_reaches_behaviors(write_run: WriteRun) -> None:
    """--set reaches every key, with quoted names and YAML values."""
    items = [
        "behaviors.Ball.max_steps=1e5",
        'behaviors."My.Ball".network_settings.memory={sequence_length: 8}',
        "env_settings.env_args=[--level, 3]",
        "checkpoint_settings.run_id=010",
        "rollcast.max_wall_seconds=null",
        "behaviors.Ball.network_settings.hidden_units=[64, 32]",
    ]
    options = load_run_options(write_run(RUN), set_items=items).options
    memory = options.behaviors["My.Ball"].network_settings.memory
    assert options.behaviors["Ball"].max_steps == 100000
    assert memory is not None
    assert memory.sequence_length == 8
    assert options.behaviors["Ball"].network_settings.widths == (64, 32)
    assert options.env_settings.env_args == ("--level", "3")
    assert options.checkpoint_settings.run_id == "010"


def test_set_reaches_every_behavior(write_run: WriteRun) -> None:
    """``behaviors.*`` means all that the run file lists, and those that it does not list."""
    items = ["behaviors.*.max_steps=1e5", "behaviors.Ball.max_steps=7"]
    options = load_run_options(write_run(RUN), set_items=items).options
    assert (options.settings_for("Ball").max_steps, options.settings_for("My.Ball").max_steps) == (7, 100000)
    defaults = f"default_settings: {{trainer_type: poca}}\n{RUN}"
    for text, trainer in (("", "ppo"), ("default_settings: {trainer_type: poca}\n", "poca"), (defaults, "poca")):
        options = load_run_options(write_run(text) if text else None, set_items=items[:1]).options
        unlisted = options.settings_for("New")
        assert (unlisted.max_steps, unlisted.trainer_type) == (100000, trainer)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("behaviors.*.max_stebs=3", "behaviors.Ball.max_stebs: unknown key 'max_stebs'; did you mean 'max_steps'?"),
        ("behaviors.*=3", "must be a map"),
        ("env_settings.seed", "must have the form KEY=VALUE"),
        ("=3", "must have the form KEY=VALUE"),
        ("env_settings..seed=3", "must have the form KEY=VALUE"),
        ("env_settings.=3", "must have the form KEY=VALUE"),
        ("env_settings.sede=3", "did you mean 'seed'?"),
        ("behaviors.Bal.max_steps=3", "no behavior 'Bal'; did you mean 'Ball'?"),
        ("behaviors.Xyz.max_steps=3", "it lists Ball, My.Ball"),
        ("env_settings.env_args=[1,", "cannot be read"),
        ("behaviors.Ball=3", "must be a map"),
        ("behaviors.Ball.network_settings.hidden_units=[64", "cannot be read"),
        ("debug.more=3", "debug"),
    ],
)
def test_a_wrong_set_item_is_an_error(write_run: WriteRun, item: str, expected: str) -> None:
    """The message shows the item or its path, and a suggestion."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(RUN), set_items=[item])
    assert "--set" in str(caught.value)
    assert expected in str(caught.value)


def test_flags_are_known_by_name_or_path(write_run: WriteRun) -> None:
    """Flags are given by argparse name, flag name or dotted path; None is an absent flag."""
    cli: dict[str, object] = {"run_id": "a", "env": "game", "rollcast.address": "127.0.0.1:0", "seed": None}
    loaded = load_run_options(write_run(RUN), cli=cli)
    assert loaded.options.checkpoint_settings.run_id == "a"
    assert loaded.options.env_settings.env_path == "game"
    assert loaded.sources["rollcast.address"] == "--address"
    assert loaded.sources["env_settings.seed"] == "default"


def test_the_deterministic_flag_is_for_the_listed_behaviors(write_run: WriteRun) -> None:
    """--deterministic changes the listed behaviors and not the defaults."""
    path = write_run("default_settings: {trainer_type: ppo}\nbehaviors: {A: }\n")
    options = load_run_options(path, cli={"deterministic": True}).options
    assert options.behaviors["A"].network_settings.deterministic
    assert not options.settings_for("B").network_settings.deterministic


def test_every_flag_sets_a_place_in_the_run_file() -> None:
    """Every flag sets an existing key."""
    assert [flag for flag in FLAGS if slot_at(RunOptions, {}, FLAGS[flag]) is None or flag != flag_name(flag)] == []


@pytest.mark.parametrize(
    ("file", "cli", "expected"),
    [
        ("{resume: true, initialize_from: old}", {}, (True, None, 1)),
        ("{resume: true}", {"initialize_from": "old"}, (False, "old", 1)),
        ("{initialize_from: old}", {"resume": True}, (True, None, 1)),
        ("{}", {"resume": True, "initialize_from": "old"}, (True, None, 1)),
        ("{resume: auto, initialize_from: old}", {}, ("auto", None, 1)),
        ("{resume: false, initialize_from: old}", {}, (False, "old", 0)),
        ('{resume: "no", initialize_from: old}', {}, (False, "old", 1)),
        ("{load_model: true}", {}, (True, None, 1)),
        ("{}", {"load": True}, (True, None, 1)),
    ],
)
def test_a_run_starts_from_one_thing(
    write_run: WriteRun, file: str, cli: dict[str, Value], expected: tuple[object, ...]
) -> None:
    """Conflicting initial sources and old names are warnings."""
    path = write_run(f"behaviors: {{A: }}\ncheckpoint_settings: {file}\n")
    loaded = load_run_options(path, cli=cli)
    settings = loaded.options.checkpoint_settings
    assert expected == (settings.resume, settings.initialize_from, len(loaded.warnings))
