"""Where players call is known before anything is imported, and never differs from what the full settings say."""

from __future__ import annotations

import pytest

from actor_client.exits import ActorError
from actor_client.settings.addresses import early_ports
from actor_client.settings.commands import UnitySettings
from actor_client.settings.loading import load

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
