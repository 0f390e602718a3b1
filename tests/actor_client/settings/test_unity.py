"""Settings for Unity players: what is wrong is named, and what the gym command reads is no error here."""

from __future__ import annotations

import pytest

from actor_client.cli import build_parser
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.commands import GymSettings, UnitySettings
from actor_client.settings.loading import load


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*GymSettings.model_fields, *UnitySettings.model_fields}:
        monkeypatch.delenv(f"ROLLCAST_ACTOR_{name.upper()}", raising=False)


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
def test_what_is_wrong_is_named(flags: dict[str, object], text: str) -> None:
    """One line with the flag, the value and what is allowed."""
    with pytest.raises(ActorError) as failure:
        unity(**flags)
    assert failure.value.exit_code is ExitCode.USAGE
    assert text in failure.value.message
    assert "\n" not in failure.value.message


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


def test_every_setting_has_a_flag_and_the_other_way_round() -> None:
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
