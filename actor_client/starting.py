"""Begins every actor command: makes the link from the settings, and refuses runs that the command does not support."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import MappingProxyType

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.demos.players import PlayerDemos
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.policy.runner import Policy
from actor_client.settings.commands import CommonSettings


def make_link(
    settings: CommonSettings,
    heartbeat: Heartbeat,
    *simulator: str,
    opponent: str | None = None,
    advice: Mapping[str, str] = MappingProxyType({}),
    quiet_seconds: float = 0.0,
) -> LearnerLink:
    """Returns the link to the learner, not started yet.

    Args:
        settings: The command's settings.
        heartbeat: Updated while a thread waits in the link.
        *simulator: What is stepped, for the learner's log, if it is not Gymnasium.
        opponent: Name of the script that plays opponents; None for none.
        advice: The command's own next steps for errors, by the learner's reason.
        quiet_seconds: Seconds without warnings of a learner that has never answered.
    """
    return LearnerLink(
        settings.learner,
        actor_name=settings.name,
        load=Policy.load,
        client_version="; ".join((f"rollcast {version('rollcast')}", f"Python {sys.version.split()[0]}", *simulator)),
        heartbeat=heartbeat,
        advice=advice,
        quiet_seconds=quiet_seconds,
        opponent=opponent or "",
        security=settings.security,
        outage_bytes=settings.outage_bytes,
    )


@contextmanager
def recorded_players(settings: CommonSettings, link: LearnerLink) -> Iterator[PlayerDemos | None]:
    """Records demonstrations of agents within the block if the settings ask for it; None records none."""
    if settings.record is None:
        yield None
        return
    demos = PlayerDemos(settings.record, episodes=settings.record_episodes, on_enough=link.request_stop)
    try:
        yield demos
    finally:
        demos.close()


def refuse_lockstep(run: RunInfo, what: str) -> None:
    """Refuses a lock-step run: its rounds count the steps of environments that are stepped together.

    Args:
        run: The run.
        what: What does not support it, and why or what else to do.

    Raises:
        ActorError: The run is in lock-step.
    """
    if run.assignment.lockstep_quota_steps:
        raise ActorError(
            ExitCode.REFUSED, f"run {run.run_id} is in lock-step (rollcast.lockstep in its run file), which {what}"
        )
