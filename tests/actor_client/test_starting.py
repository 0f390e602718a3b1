"""Tests what every actor command begins with."""

from __future__ import annotations

from actor_client.heartbeat import Heartbeat
from actor_client.settings.commands import CommonSettings
from actor_client.starting import make_link


def test_the_link_follows_the_settings_of_every_command() -> None:
    """Room for outages reaches the link, whatever is stepped; `rollcast act boards` had ignored it."""
    link = make_link(CommonSettings(outage_bytes=5), Heartbeat(None), "OpenSpiel")
    assert link._outage_bytes == 5
