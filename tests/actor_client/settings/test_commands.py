"""Tests flags, variables and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from actor_client.cli import build_parser
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.addresses import early_ports
from actor_client.settings.agents import PettingZooSettings
from actor_client.settings.boards import BoardsSettings, PlaySettings
from actor_client.settings.commands import CommonSettings, GymSettings, UnitySettings
from actor_client.settings.conform import ConformSettings
from actor_client.settings.dm_env_rpc import DmEnvRpcSettings
from actor_client.settings.godot import GodotSettings
from actor_client.settings.loading import load


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (
        BoardsSettings,
        ConformSettings,
        DmEnvRpcSettings,
        GodotSettings,
        GymSettings,
        PettingZooSettings,
        PlaySettings,
        UnitySettings,
    )
    for name in {name for each in commands for name in each.model_fields}:
        monkeypatch.delenv(f"ROLLCAST_ACTOR_{name.upper()}", raising=False)


def test_flags_win_over_variables_and_those_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag overrides its variable, which overrides the default."""
    monkeypatch.setenv("ROLLCAST_ACTOR_NUM_ENVS", "4")
    monkeypatch.setenv("ROLLCAST_ACTOR_NAME", "lab")
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_KWARGS", '{"a": 1}')
    settings = load(GymSettings, {"env": "CartPole-v1", "num_envs": "8"})
    assert (settings.num_envs, settings.name, settings.learner) == (8, "lab", "127.0.0.1:50051")
    assert settings.env_kwargs == {"a": 1}


def test_lists_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated flags and comma-separated variables keep their order."""
    parsed = build_parser().parse_args(["gym", "--wrap", "b:c", "--wrap", "a:b"])
    assert load(GymSettings, {"env": "X", "wrap": parsed.wrap}).wrap == ("b:c", "a:b")
    assert unity(side_channel=["b:c", "a:b"]).side_channel == ("b:c", "a:b")
    monkeypatch.setenv("ROLLCAST_ACTOR_WRAP", "b:c, a:b")
    monkeypatch.setenv("ROLLCAST_ACTOR_SIDE_CHANNEL", "b:c, a:b")
    assert load(GymSettings, {"env": "X"}).wrap == load(UnitySettings, {}).side_channel == ("b:c", "a:b")


def test_rules_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are read in order, from flags and variables; a value without a pattern is for all names."""
    parsed = build_parser().parse_args(["pettingzoo", "--behavior", "a_*=A", "--behavior", "Rest", "--team", "b=3"])
    settings = load(PettingZooSettings, {"env": "X", "behavior": parsed.behavior, "team": parsed.team})
    assert settings.behavior_rules == (("a_*", "A"), ("*", "Rest"))
    assert settings.team_rules == (("b", "3"),)
    monkeypatch.setenv("ROLLCAST_ACTOR_GROUP", "a_*=left, right")
    assert load(PettingZooSettings, {"env": "X"}).group_rules == (("a_*", "left"), ("*", "right"))


def test_games_are_named_as_openspiel_names_them() -> None:
    """A game may have parameters; anything else is refused, and so are records without a folder."""
    parsed = build_parser().parse_args(["boards", "--game", "go(board_size=9)", "--num-envs", "8"])
    settings = load(BoardsSettings, {"game": parsed.game, "num_envs": parsed.num_envs})
    assert (settings.game, settings.num_envs) == ("go(board_size=9)", 8)
    for game in ("", "go(", "Go", "go;ls", "../go", "go(a b)"):
        with pytest.raises(ActorError, match="--game"):
            load(BoardsSettings, {"game": game})
    with pytest.raises(ActorError, match="add --records DIR"):
        load(BoardsSettings, {"game": "go", "records_every": "5"})
    parsed = build_parser().parse_args(["play", "M.onnx", "--game", "chess", "--temperature", "0.5"])
    play = load(PlaySettings, {"model": parsed.model, "game": parsed.game, "temperature": parsed.temperature})
    assert (play.model.name, play.temperature, play.search, play.side) == ("M.onnx", 0.5, 0, "first")
    with pytest.raises(ActorError, match="--temperature"):
        load(PlaySettings, {"model": "M.onnx", "game": "chess", "temperature": "nan"})


def test_settings_of_worlds_are_json_or_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of flags are read as JSON, and as texts if they are none; a variable is a JSON object."""
    line = [
        "dm-env-rpc",
        "h:1",
        "--create",
        "size=9",
        "--create",
        "level=two words",
        "--create",
        "who=",
        "--join",
        'tag="7"',
    ]
    parsed = build_parser().parse_args(line)
    given = {"server": "localhost:1", "create": parsed.create, "join": parsed.join}
    settings = load(DmEnvRpcSettings, given)
    assert (settings.create, settings.join) == ({"size": 9, "level": "two words", "who": ""}, {"tag": "7"})
    monkeypatch.setenv("ROLLCAST_ACTOR_CREATE", '{"sizes": [1, 2.5], "fast": true}')
    assert load(DmEnvRpcSettings, {"server": "localhost:1"}).create == {"sizes": [1, 2.5], "fast": True}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"server": "here"}, "HOST:PORT 'here': must be host:port"),
        ({"server": "10.0.0.5:9"}, "give --env-tls-ca, or pass --insecure if you trust the network"),
        ({"create": ["size"]}, "'size' has no name and value; write KEY=VALUE"),
        ({"create": ["=1"]}, "'=1' has no name and value"),
        ({"create": ['a={"b": 1}']}, 'a is {"b": 1}; a number of 64 bits, true or false, a text'),
        ({"create": ["a=[1, true]"]}, "a list of one of them is needed"),
        ({"create": ["a=[]"]}, "a list of one of them is needed"),
        ({"create": ["a=null"]}, "a is null"),
        ({"create": [f"a={2**63}"]}, "a number of 64 bits"),
        ({"join": "x"}, "is not JSON"),
        ({"create": ["a=1"], "world": "arena"}, "leave out --world or --create"),
        ({"env_token_file": "/nowhere"}, "/nowhere cannot be read"),
    ],
)
def test_what_is_wrong_with_worlds_is_named(flags: dict[str, object], text: str) -> None:
    """The error has the value and what to write."""
    check_refusal(DmEnvRpcSettings, {"server": "127.0.0.1:9000", **flags}, text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"behavior": ["a=B/C"]}, "the behavior 'B/C' contains"),
        ({"team": ["a=-1"]}, "team '-1' is not a number from 0 to 2147483647"),
        ({"team": ["a=9999999999"]}, "is not a number"),
        ({"group": ["a="]}, "has no name of a group"),
        ({"group_reward": "mean"}, "needs groups"),
        ({"group_reward": "most", "group": ["all"]}, "group-reward 'most'"),
    ],
)
def test_a_wrong_rule_is_named(flags: dict[str, object], message: str) -> None:
    """The error has the value and what to write."""
    with pytest.raises(ActorError, match=message):
        load(PettingZooSettings, {"env": "X"} | flags)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({}, "--env is missing: give --env CartPole-v1 or --env module:callable, or set ROLLCAST_ACTOR_ENV"),
        ({"env": "X", "num_envs": "0"}, "--num-envs '0': input should be greater than or equal to 1"),
        ({"env": "X", "env_kwargs": "{"}, "--env-kwargs '{': is not JSON"),
        ({"env": "X", "env_kwargs": "[1]"}, "is not a JSON object"),
        ({"env": "X", "max_wall_seconds": "nan"}, "--max-wall-seconds 'nan'"),
        ({"env": "X", "connect_timeout": "-1"}, "--connect-timeout '-1'"),
        ({"env": "X", "name": "a b"}, "--name 'a b'"),
        ({"env": "X", "log_format": "xml"}, "--log-format 'xml'"),
        ({"env": "X", "learner": "here"}, "--learner 'here': must be host:port with a port from 1 to 65535"),
        (
            {"env": "X", "learner": "http://here:1"},
            "--learner 'http://here:1': must be host:port alone, without the scheme of a URL",
        ),
        ({"env": "X", "learner": "10.0.0.5:50051"}, "pass --insecure if you trust the network"),
        ({"env": "X", "wrap": ["a:b", "c"]}, "'c' names no callable; write module:callable"),
        ({"env": "X", "frame_skip": "0"}, "--frame-skip '0': input should be greater than or equal to 1"),
        ({"env": "X", "max_episode_steps": "0"}, "--max-episode-steps '0': input should be greater than"),
        ({"env": "X", "video_every": "3"}, "video_every 3 needs a folder for the videos: add --video DIR"),
    ],
)
def test_what_is_wrong_is_named(flags: dict[str, object], text: str) -> None:
    """The error names the flag, the value and what is allowed, in one line."""
    check_refusal(GymSettings, flags, text)


def check_refusal(settings: type[CommonSettings], flags: dict[str, object], text: str) -> None:
    """Loads settings from flags, and expects one line with a text."""
    with pytest.raises(ActorError) as failure:
        load(settings, flags)
    assert failure.value.exit_code is ExitCode.USAGE
    assert text in failure.value.message
    assert "\n" not in failure.value.message


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in a variable names the variable."""
    monkeypatch.setenv("ROLLCAST_ACTOR_NUM_ENVS", "none")
    with pytest.raises(ActorError, match="ROLLCAST_ACTOR_NUM_ENVS 'none'"):
        load(GymSettings, {"env": "X"})
    monkeypatch.setenv("ROLLCAST_ACTOR_NUM_ENVS", "1")
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_KWARGS", "{")
    with pytest.raises(ActorError, match="ROLLCAST_ACTOR_"):
        load(GymSettings, {"env": "X"})


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("boards", BoardsSettings),
        ("conform", ConformSettings),
        ("dm-env-rpc", DmEnvRpcSettings),
        ("gym", GymSettings),
        ("pettingzoo", PettingZooSettings),
        ("play", PlaySettings),
        ("unity", UnitySettings),
    ],
)
def test_every_setting_has_a_flag_and_the_other_way_round(command: str, settings: type[BaseModel]) -> None:
    """Every setting has a flag, and every flag has a setting."""
    (commands,) = [action for action in build_parser()._actions if action.dest == "command"]
    flags = {action.dest for action in commands.choices[command]._actions}  # type: ignore[index]
    assert flags - {"help", "describe"} == set(settings.model_fields)


def test_arguments_after_env_args_are_the_builds() -> None:
    """Flags after --env-args are not those of the command."""
    parsed = build_parser().parse_args(["unity", "--num-envs", "1", "--env-args", "--num-envs", "9", "--anything"])
    assert (parsed.num_envs, parsed.env_args) == ("1", ["--num-envs", "9", "--anything"])


def test_metrics_are_served_on_this_machine_unless_told_otherwise() -> None:
    """The default metrics port is replaced if taken; a requested one is not."""
    settings = load(GymSettings, {"env": "X"}, {})
    assert (settings.metrics_endpoint, settings.may_move_metrics) == (("127.0.0.1", 9465), True)
    settings = load(GymSettings, {"env": "X", "metrics_address": "[::1]:0"}, {})
    assert (settings.metrics_endpoint, settings.may_move_metrics) == (("::1", 0), False)
    assert load(GymSettings, {"env": "X", "metrics_address": "off"}, {}).metrics_endpoint is None


def test_metrics_for_other_machines_need_a_word(tmp_path: Path) -> None:
    """Metrics for other machines need --insecure, or a token."""
    with pytest.raises(ActorError, match="--insecure"):
        load(GymSettings, {"env": "X", "metrics_address": "0.0.0.0:9465"}, {})
    settings = load(GymSettings, {"env": "X", "metrics_address": "0.0.0.0:9465", "insecure": True}, {})
    assert settings.metrics_endpoint == ("0.0.0.0", 9465)  # noqa: S104 - what was asked for
    with_token = {"env": "X", "metrics_address": "0.0.0.0:9465", "metrics_token_file": str(tmp_path / "token")}
    with pytest.raises(ActorError, match="token cannot be read"):
        load(GymSettings, with_token, {})
    (tmp_path / "token").write_text("a-token-of-the-metrics")
    assert load(GymSettings, with_token, {}).metrics_token_file == tmp_path / "token"


FLAGS: list[dict[str, object]] = [
    {},
    {"env": "B"},
    {"env": "B", "num_envs": "3", "base_port": "6000"},
    {"base_port": "7000", "player_address": "127.0.0.1"},
    {"player_address": "0.0.0.0", "insecure": True},  # noqa: S104
    {"player_address": "[::1]", "max_player_message_bytes": "2000000"},
]


@pytest.mark.parametrize("flags", FLAGS)
def test_both_readings_agree(monkeypatch: pytest.MonkeyPatch, flags: dict[str, object]) -> None:
    """Flags and variables in any case give the same address of the metrics."""
    assert early_ports(flags, {}) == load(UnitySettings, flags, {}).ports
    variables = {f"Rollcast_actor_{name}": str(value) for name, value in flags.items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert early_ports({}, variables) == load(UnitySettings, {}).ports == early_ports(flags, {})


def test_empty_variables_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty variables count as absent, as compose files set them."""
    monkeypatch.setenv("ROLLCAST_ACTOR_BASE_PORT", "")
    assert early_ports({}, {"ROLLCAST_ACTOR_BASE_PORT": ""}) == load(UnitySettings, {}).ports


def unity(**flags: object) -> UnitySettings:
    """Returns settings from flags."""
    return load(UnitySettings, flags, {})


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"num_envs": "2"}, "num_envs 2 needs a build to start: give --env"),
        ({"env": "B", "num_envs": "x"}, "--num-envs 'x'"),
        ({"env": "B", "num_envs": "0"}, "--num-envs '0'"),
        ({"env": "B", "num_envs": "2000"}, "--num-envs '2000'"),
        ({"env": "B", "base_port": "0"}, "--base-port '0'"),
        ({"base_port": "65536"}, "--base-port '65536'"),
        ({"env": "B", "base_port": "65535", "num_envs": "2"}, "need ports above 65535; choose a smaller --base-port"),
        ({"max_player_message_bytes": "1"}, "--max-player-message-bytes '1'"),
        ({"max_player_message_bytes": str(1 << 31)}, "--max-player-message-bytes"),
        ({"player_address": "0.0.0.0"}, "player_address 0.0.0.0 can be reached from other machines"),  # noqa: S104
        ({"player_address": "a b"}, "must have an IP address or a host name"),
    ],
)
def test_no_port_opens_for_settings_that_are_refused(flags: dict[str, object], text: str) -> None:
    """The early reading opens no port for what the full one refuses with flag, value and what is allowed, in one line."""
    assert early_ports(flags, {}) is None
    check_refusal(UnitySettings, flags, text)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"env": "B", "timeout_wait": "0"}, "--timeout-wait '0'"),
        ({"env": "B", "max_lifetime_restarts": "-2"}, "--max-lifetime-restarts '-2'"),
        ({"env": "B", "restarts_rate_limit_period_s": "nan"}, "--restarts-rate-limit-period-s 'nan'"),
        ({"side_channel": ["nothing"]}, "'nothing' names no callable; write module:callable"),
        ({"player_address": " , "}, "--player-address ' , ': has no address"),
        ({"learner": "gpu.lan:50051"}, "pass --insecure"),
        *(({"metrics_address": each}, "--metrics-address") for each in ("", "9465", "host:65536", ":1", "a..b:0")),
        *(({"opponent": each}, "is not module:callable") for each in ("chase", ":chase", "a:b/c", f"a:{'b' * 127}")),
    ],
)
def test_what_is_wrong_with_players_is_named(flags: dict[str, object], text: str) -> None:
    """The error names the flag, the value and what is allowed, in one line."""
    check_refusal(UnitySettings, flags, text)


def test_the_editor_and_builds_have_ports_of_their_own() -> None:
    """The editor and builds have the ports of ML-Agents, on both addresses of localhost."""
    assert unity().ports == (("127.0.0.1", "::1"), 5004, 1, 256 << 20, True)
    assert unity(env="B", num_envs="3").ports == (("127.0.0.1", "::1"), 5005, 3, 256 << 20, False)
    assert unity(base_port="6000").first_port == 6000
    settings = unity(env="B", opponent="my_game.scripts:Chase")
    assert settings.opponent == "my_game.scripts:Chase"
    assert (settings.no_graphics, settings.env_args, settings.timeout_wait) == (None, None, None)  # the run file's


def test_addresses_are_a_list() -> None:
    """Addresses are a list; those of other machines need --insecure."""
    assert unity(player_address="127.0.0.1, [::1],::1").hosts == ("127.0.0.1", "::1")
    assert unity(player_address="0.0.0.0", insecure=True).hosts == ("0.0.0.0",)  # noqa: S104


@pytest.mark.parametrize(
    ("text", "words"),
    [("--level 'two words' -x", ("--level", "two words", "-x")), ('["--a", "b c"]', ("--a", "b c")), ("[]", ())],
)
def test_arguments_of_the_build_in_a_variable(
    monkeypatch: pytest.MonkeyPatch, text: str, words: tuple[str, ...]
) -> None:
    """Arguments of the build are given as shell words or a JSON list."""
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_ARGS", text)
    assert unity(env="B").env_args == words


@pytest.mark.parametrize("text", ["'open", "[1", "[1]"])
def test_arguments_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Arguments that cannot be parsed are an error that names the variable."""
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_ARGS", text)
    with pytest.raises(ActorError, match="ROLLCAST_ACTOR_ENV_ARGS"):
        unity(env="B")


def test_a_variable_of_the_other_command_is_no_error_and_an_unknown_one_is() -> None:
    """A variable of the other command is accepted, and an unknown one is an error."""
    load(UnitySettings, {}, {"ROLLCAST_ACTOR_ENV_KWARGS": "{}", "ROLLCAST_ACTOR_VECTOR": "1"})
    load(GymSettings, {"env": "X"}, {"ROLLCAST_ACTOR_TIMEOUT_WAIT": "5", "ROLLCAST_ACTOR_PLAYER_ADDRESS": "::1"})
    with pytest.raises(ActorError, match=r"ROLLCAST_ACTOR_TIMEOUT is not a setting .*ROLLCAST_ACTOR_TIMEOUT_WAIT"):
        load(UnitySettings, {}, {"ROLLCAST_ACTOR_TIMEOUT": "5"})
