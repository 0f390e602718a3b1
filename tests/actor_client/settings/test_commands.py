"""Flags over variables over defaults; what is wrong is named with its flag or variable."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from actor_client.cli import build_parser
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.addresses import early_ports, is_loopback, split_address
from actor_client.settings.commands import CommonSettings, GymSettings, UnitySettings
from actor_client.settings.loading import load


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*GymSettings.model_fields, *UnitySettings.model_fields}:
        monkeypatch.delenv(f"ROLLCAST_ACTOR_{name.upper()}", raising=False)


def test_flags_win_over_variables_and_those_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer fills in what the one above leaves open."""
    monkeypatch.setenv("ROLLCAST_ACTOR_NUM_ENVS", "4")
    monkeypatch.setenv("ROLLCAST_ACTOR_NAME", "lab")
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_KWARGS", '{"a": 1}')
    settings = load(GymSettings, {"env": "CartPole-v1", "num_envs": "8"})
    assert (settings.num_envs, settings.name, settings.learner) == (8, "lab", "127.0.0.1:50051")
    assert settings.env_kwargs == {"a": 1}


def test_settings_are_frozen() -> None:
    """Nobody changes them on the way."""
    settings = load(GymSettings, {"env": "CartPole-v1"})
    with pytest.raises(ValidationError):
        settings.num_envs = 2


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({}, "--env is missing"),
        ({"env": "X", "num_envs": "0"}, "--num-envs '0': input should be greater than or equal to 1"),
        ({"env": "X", "num_envs": "many"}, "--num-envs 'many': input should be a valid integer"),
        ({"env": "X", "env_kwargs": "{"}, "--env-kwargs '{': is no JSON"),
        ({"env": "X", "env_kwargs": "[1]"}, "is no JSON object"),
        ({"env": "X", "max_seconds": "nan"}, "--max-seconds 'nan'"),
        ({"env": "X", "connect_timeout": "-1"}, "--connect-timeout '-1'"),
        ({"env": "X", "name": "a b"}, "--name 'a b'"),
        ({"env": "X", "log_format": "xml"}, "--log-format 'xml'"),
        ({"env": "X", "learner": "here"}, "--learner 'here': 'here' names no host; write HOST:PORT"),
        ({"env": "X", "learner": "10.0.0.5:50051"}, "pass --insecure if you trust the network"),
    ],
)
def test_what_is_wrong_is_named(flags: dict[str, object], text: str) -> None:
    """One line with the flag, the value and what is allowed."""
    check_refusal(GymSettings, flags, text)


def check_refusal(settings: type[CommonSettings], flags: dict[str, object], text: str) -> None:
    """Loads settings from flags, and expects one line with a text."""
    with pytest.raises(ActorError) as failure:
        load(settings, flags)
    assert failure.value.exit_code is ExitCode.USAGE
    assert text in failure.value.message
    assert "\n" not in failure.value.message


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user learns where the value came from."""
    monkeypatch.setenv("ROLLCAST_ACTOR_NUM_ENVS", "none")
    with pytest.raises(ActorError, match="ROLLCAST_ACTOR_NUM_ENVS 'none'"):
        load(GymSettings, {"env": "X"})
    monkeypatch.setenv("ROLLCAST_ACTOR_NUM_ENVS", "1")
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_KWARGS", "{")
    with pytest.raises(ActorError, match="ROLLCAST_ACTOR_"):
        load(GymSettings, {"env": "X"})


def test_a_misspelt_variable_is_an_error() -> None:
    """A variable that nobody reads would be ignored in silence."""
    with pytest.raises(
        ActorError, match=r"ROLLCAST_ACTOR_NUMENVS is no setting .* did you mean ROLLCAST_ACTOR_NUM_ENVS"
    ):
        load(GymSettings, {"env": "X"}, {"ROLLCAST_ACTOR_NUMENVS": "2"})


def test_every_setting_has_a_flag_and_the_other_way_round() -> None:
    """Help and settings cannot drift apart."""
    parsed = build_parser().parse_args(
        [
            "gym", "--env", "X", "--env-kwargs", "{}", "--num-envs", "1", "--vector", "--behavior", "B",
            "--learner", "h:1", "--insecure", "--name", "n", "--connect-timeout", "1", "--max-seconds", "1",
            "--max-env-failures", "1", "--metrics-address", "off", "--heartbeat-file", "f", "--log-format", "json", "--log-level", "info",
            "--policy", "a:b", "--seed", "1", "--record", "f", "--record-episodes", "1",
        ]
    )  # fmt: skip
    assert set(vars(parsed)) - {"command", "run", "version"} == set(GymSettings.model_fields)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("localhost:1", "localhost", 1), ("[::1]:50051", "::1", 50051), ("learner.lan:65535", "learner.lan", 65535)],
)
def test_addresses(address: str, host: str, port: int) -> None:
    """HOST:PORT, with brackets around IPv6."""
    assert split_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":1",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "::1:50051",
        "a b:1",
        "h:٣",
        "http://h:1",
        "a..b:1",
        "x" * 64 + ":1",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    """Everything else is refused."""
    with pytest.raises(ValueError, match="write"):
        split_address(address)


def test_loopback() -> None:
    """Only what is this machine for sure needs no --insecure."""
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "192.168.0.1", "learner", "localhost.evil.example"))  # noqa: S104
    assert load(GymSettings, {"env": "X", "learner": "10.0.0.5:50051", "insecure": True}).insecure


def test_metrics_are_served_on_this_machine_unless_told_otherwise() -> None:
    """A port of its own by default, which gives way to another actor's; one that was asked for does not."""
    settings = load(GymSettings, {"env": "X"}, {})
    assert (settings.metrics_endpoint, settings.may_move_metrics) == (("127.0.0.1", 9465), True)
    settings = load(GymSettings, {"env": "X", "metrics_address": "[::1]:0"}, {})
    assert (settings.metrics_endpoint, settings.may_move_metrics) == (("::1", 0), False)
    assert load(GymSettings, {"env": "X", "metrics_address": "off"}, {}).metrics_endpoint is None


def test_metrics_for_other_machines_need_a_word() -> None:
    """They travel in plain text and without a password."""
    with pytest.raises(ActorError, match="--insecure"):
        load(GymSettings, {"env": "X", "metrics_address": "0.0.0.0:9465"}, {})
    settings = load(GymSettings, {"env": "X", "metrics_address": "0.0.0.0:9465", "insecure": True}, {})
    assert settings.metrics_endpoint == ("0.0.0.0", 9465)  # noqa: S104 - what was asked for


@pytest.mark.parametrize("address", ["", "9465", "host", "host:65536", ":1", "of f:1", "a..b:0", "x" * 64 + ":0"])
def test_an_address_for_metrics_has_host_and_port(address: str) -> None:
    """The error names the flag."""
    with pytest.raises(ActorError, match="--metrics-address"):
        load(GymSettings, {"env": "X", "metrics_address": address}, {})


FLAGS: list[dict[str, object]] = [
    {},
    {"env": "B"},
    {"env": "B", "num_envs": "3", "base_port": "6000"},
    {"base_port": "7000", "listen": "127.0.0.1"},
    {"listen": "0.0.0.0", "insecure": True},  # noqa: S104
    {"listen": "[::1]", "max_player_message_bytes": "2000000"},
]
WRONG: list[dict[str, object]] = [
    {"num_envs": "2"},
    {"env": "B", "num_envs": "x"},
    {"env": "B", "num_envs": "0"},
    {"env": "B", "num_envs": "4000"},
    {"base_port": "-1"},
    {"base_port": "65536"},
    {"env": "B", "base_port": "65535", "num_envs": "2"},
    {"listen": "0.0.0.0"},  # noqa: S104
    {"max_player_message_bytes": "0"},
]


@pytest.mark.parametrize("flags", FLAGS)
def test_both_readings_agree(monkeypatch: pytest.MonkeyPatch, flags: dict[str, object]) -> None:
    """By flags, and by variables in any case."""
    assert early_ports(flags, {}) == load(UnitySettings, flags, {}).ports
    variables = {f"Rollcast_actor_{name}": str(value) for name, value in flags.items()}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert early_ports({}, variables) == load(UnitySettings, {}).ports == early_ports(flags, {})


@pytest.mark.parametrize("flags", WRONG)
def test_nothing_opens_for_settings_that_are_refused(flags: dict[str, object]) -> None:
    """The full check says what is wrong; until then no port is open, least of all to other machines."""
    assert early_ports(flags, {}) is None
    with pytest.raises(ActorError):
        load(UnitySettings, flags, {})


def test_what_only_the_full_check_understands_opens_later() -> None:
    """Nothing is guessed."""
    assert early_ports({"env": "B", "num_envs": "2.0"}, {}) is None
    assert load(UnitySettings, {"env": "B", "num_envs": "2.0"}, {}).ports.players == 2


def test_empty_variables_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As compose files set them."""
    monkeypatch.setenv("ROLLCAST_ACTOR_BASE_PORT", "")
    assert early_ports({}, {"ROLLCAST_ACTOR_BASE_PORT": ""}) == load(UnitySettings, {}).ports


def unity(**flags: object) -> UnitySettings:
    """Settings from flags."""
    return load(UnitySettings, flags, {})


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"num_envs": "2"}, "num_envs 2 needs a build to start: give --env"),
        ({"env": ""}, "--env ''"),
        ({"env": "B", "num_envs": "0"}, "--num-envs '0'"),
        ({"env": "B", "num_envs": "2000"}, "--num-envs '2000'"),
        ({"env": "B", "base_port": "0"}, "--base-port '0'"),
        ({"env": "B", "base_port": "65535", "num_envs": "2"}, "ask for ports over 65535; choose a smaller --base-port"),
        ({"env": "B", "timeout_wait": "0"}, "--timeout-wait '0'"),
        ({"env": "B", "max_lifetime_restarts": "-2"}, "--max-lifetime-restarts '-2'"),
        ({"env": "B", "restarts_rate_limit_period_s": "nan"}, "--restarts-rate-limit-period-s 'nan'"),
        ({"max_player_message_bytes": "1"}, "--max-player-message-bytes '1'"),
        ({"max_player_message_bytes": str(1 << 31)}, "--max-player-message-bytes"),
        ({"side_channel": ["nothing"]}, "'nothing' names nothing to call; write module:callable"),
        ({"listen": "0.0.0.0"}, "listen 0.0.0.0 can be reached from other machines"),  # noqa: S104
        ({"listen": " , "}, "--listen ' , ': names no address"),
        ({"listen": "a b"}, "names no host"),
        ({"learner": "gpu.lan:50051"}, "pass --insecure"),
    ],
)
def test_what_is_wrong_with_players_is_named(flags: dict[str, object], text: str) -> None:
    """One line with the flag, the value and what is allowed."""
    check_refusal(UnitySettings, flags, text)


def test_the_editor_and_builds_have_ports_of_their_own() -> None:
    """Those of ML-Agents, on the two addresses that localhost may mean."""
    assert unity().ports == (("127.0.0.1", "::1"), 5004, 1, 256 << 20, True)
    assert unity(env="B", num_envs="3").ports == (("127.0.0.1", "::1"), 5005, 3, 256 << 20, False)
    assert unity(base_port="6000").first_port == 6000


def test_addresses_are_a_list() -> None:
    """IPv6 with or without brackets; other machines' need a word."""
    assert unity(listen="127.0.0.1, [::1],::1").hosts == ("127.0.0.1", "::1")
    assert unity(listen="0.0.0.0", insecure=True).hosts == ("0.0.0.0",)  # noqa: S104


@pytest.mark.parametrize(
    ("text", "words"),
    [("--level 'two words' -x", ("--level", "two words", "-x")), ('["--a", "b c"]', ("--a", "b c")), ("[]", ())],
)
def test_arguments_of_the_build_in_a_variable(
    monkeypatch: pytest.MonkeyPatch, text: str, words: tuple[str, ...]
) -> None:
    """As a shell reads them, or as a list in JSON."""
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_ARGS", text)
    assert unity(env="B").env_args == words


@pytest.mark.parametrize("text", ["'open", "[1", "[1]"])
def test_arguments_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The variable is, in one line."""
    monkeypatch.setenv("ROLLCAST_ACTOR_ENV_ARGS", text)
    with pytest.raises(ActorError, match="ROLLCAST_ACTOR_ENV_ARGS"):
        unity(env="B")


def test_side_channels_are_flags_that_repeat_or_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways name the same."""
    assert unity(side_channel=["a:b", "c:d"]).side_channel == ("a:b", "c:d")
    monkeypatch.setenv("ROLLCAST_ACTOR_SIDE_CHANNEL", "a:b, c:d")
    assert unity().side_channel == ("a:b", "c:d")


def test_a_variable_of_the_other_command_is_no_error_and_an_unknown_one_is() -> None:
    """One environment may serve both; a typing error serves none."""
    load(UnitySettings, {}, {"ROLLCAST_ACTOR_ENV_KWARGS": "{}", "ROLLCAST_ACTOR_VECTOR": "1"})
    load(GymSettings, {"env": "X"}, {"ROLLCAST_ACTOR_TIMEOUT_WAIT": "5", "ROLLCAST_ACTOR_LISTEN": "::1"})
    with pytest.raises(ActorError, match=r"ROLLCAST_ACTOR_TIMEOUT is no setting .*ROLLCAST_ACTOR_TIMEOUT_WAIT"):
        load(UnitySettings, {}, {"ROLLCAST_ACTOR_TIMEOUT": "5"})


def test_every_setting_of_players_has_a_flag_and_the_other_way_round() -> None:
    """Help and settings cannot drift apart; what follows --env-args is the build's."""
    words = [
        "unity", "--env", "B", "--num-envs", "1", "--base-port", "1", "--listen", "::1", "--no-graphics",
        "--no-graphics-monitor", "--timeout-wait", "1", "--max-lifetime-restarts", "1", "--restarts-rate-limit-n", "1",
        "--restarts-rate-limit-period-s", "1", "--log-dir", "d", "--max-player-message-bytes", "1", "--side-channel", "a:b",
        "--learner", "h:1", "--insecure", "--name", "n", "--connect-timeout", "1", "--max-seconds", "1",
        "--metrics-address", "off", "--heartbeat-file", "f", "--log-format", "json", "--log-level", "info",
        "--error-file", "f", "--quiet-seconds", "1", "--record", "f", "--record-episodes", "1",
        "--env-args", "--num-envs", "9", "--anything",
    ]  # fmt: skip
    parsed = build_parser().parse_args(words)
    assert set(vars(parsed)) - {"command", "run", "version"} == set(UnitySettings.model_fields)
    assert parsed.env_args == ["--num-envs", "9", "--anything"]
    assert parsed.num_envs == "1"


def test_a_flag_that_was_not_given_leaves_the_run_file_its_word() -> None:
    """Absent is not false."""
    settings = unity(env="B")
    assert settings.no_graphics is None
    assert settings.env_args is None
    assert settings.timeout_wait is None
