"""Tests the frame of every actor."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from actor_client.connection.session import RunInfo
from actor_client.endings import Actor
from actor_client.heartbeat import Heartbeat
from actor_client.running import Adapter, _link
from actor_client.settings.commands import CommonSettings


class Idle(Adapter):
    """An adapter that has no environments."""

    environment = "nothing"
    simulator = "OpenSpiel"

    def prepared(self, actor: Actor) -> AbstractContextManager[None]:
        """Makes nothing."""
        return nullcontext()

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Steps nothing."""


def test_the_link_follows_the_settings_of_every_command() -> None:
    """Room for outages reaches the link, whatever is stepped; `rollcast act boards` had ignored it."""
    link = _link(Idle(), CommonSettings(outage_bytes=5), Heartbeat(None))
    assert link._outage_bytes == 5
