"""Runs every actor: makes the environments, connects, steps them, and closes. What differs between actors is their `Adapter`."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

import structlog

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.endings import Actor, closing, run_command, say_end
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import exit_at_once, stop_signals
from actor_client.policy.actions import PolicyUnusable
from actor_client.policy.runner import Policy
from actor_client.serving import served_metrics
from actor_client.settings.commands import CommonSettings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

Settings = TypeVar("Settings", bound=CommonSettings)
Stoppable = Callable[[Callable[[str], None], Callable[[], None]], AbstractContextManager[None]]


class Adapter(Protocol):
    """The environments of an actor, and how they are stepped. Subclasses replace the defaults that do not fit.

    Most extend `actor_client.adapters.BatchAdapter` or `AgentAdapter`.

    Attributes:
        environment: Name of the environment in the metrics.
        simulator: What is stepped, for the learner's log; empty for Gymnasium.
        opponent: Name of the script that plays opponents; empty for none.
        advice: Next steps for errors of the learner, by its reason.
        quiet_seconds: Seconds without warnings of a learner that has never answered.
        connecting: Fields of the log line before the connection; empty logs none.
        lockstep_fault: Why a run in lock-step is refused and what to do, worded to follow `which `; empty if it is not refused.
        survives_refusals: A behavior that the learner refuses does not end the actor, because it is one client's.
    """

    environment: str
    simulator: str = ""
    opponent: str = ""
    advice: Mapping[str, str] = MappingProxyType({})
    quiet_seconds: float = 0.0
    connecting: Mapping[str, object] = MappingProxyType({})
    lockstep_fault: str = ""
    survives_refusals: bool = False

    def prepared(self, actor: Actor) -> AbstractContextManager[None]:
        """Makes the environments, before there is a connection, and closes them at the end of the block.

        They may start processes, which must not inherit gRPC's state.

        Raises:
            ActorError: The environments cannot be made.
        """
        raise NotImplementedError

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Declares behaviors, and steps the environments until the link stops.

        Args:
            actor: The actor; its link is open.
            run: The answer of `link.open`.

        Raises:
            ActorError: The learner refused a behavior, or the environments failed too often.
            PolicyUnusable: A policy cannot act on the observations.
        """
        raise NotImplementedError

    def cut(self) -> None:
        """Ends at once what `prepared` ends, before a second signal ends the process; takes no lock."""
        return

    def metrics(self) -> "Collector | None":
        """Returns metrics in addition to those of every actor; called if metrics are served."""
        return None


def run_actor(
    adapter: Callable[[Settings], Adapter],
    settings: Settings,
    on_error: Callable[[ActorError], bool] = lambda _: False,
) -> ExitCode:
    """Steps an adapter's environments for a learner until the run is over, the time is over, or a signal comes.

    Args:
        adapter: Makes the adapter. It raises `ActorError` for settings that cannot be used.
        settings: The command's settings.
        on_error: See `actor_client.endings.run_command`.

    Returns:
        The exit code. The error that ended the actor has been reported.
    """

    def end(error: ActorError) -> NoReturn:
        exit_at_once(say_end(error, settings.log_format))

    return run_command(lambda: run_adapter(adapter(settings), settings, stop_signals, end), settings, on_error)


def run_adapter(
    adapter: Adapter, settings: CommonSettings, stoppable: Stoppable, abandon: Callable[[ActorError], object]
) -> None:
    """Makes the environments, connects, steps, and closes the session in any case.

    Args:
        adapter: The environments.
        settings: The command's settings.
        stoppable: Within its context, a request to stop calls its first argument with the reason; the second ends at once
            what else runs.
        abandon: Called in another thread when a call of an environment does not return; see `Actor`.

    Raises:
        ActorError: The actor cannot continue.
    """
    heartbeat = Heartbeat(settings.heartbeat_file)
    link = _link(adapter, settings, heartbeat)
    actor = Actor(settings, link, heartbeat, abandon)
    with stoppable(link.request_stop, adapter.cut), adapter.prepared(actor):
        link.start()
        if settings.max_wall_seconds is not None:
            link.stop_after(settings.max_wall_seconds)
        with closing(link), served_metrics(settings, link, heartbeat, adapter.environment, adapter.metrics):
            _step(adapter, actor)


def _link(adapter: Adapter, settings: CommonSettings, heartbeat: Heartbeat) -> LearnerLink:
    """Returns the link to the learner, not started yet."""
    client = [f"rollcast {version('rollcast')}", f"Python {sys.version.split()[0]}", adapter.simulator]
    return LearnerLink(
        settings.learner,
        actor_name=settings.name,
        load=Policy.load,
        client_version="; ".join(filter(None, client)),
        heartbeat=heartbeat,
        advice=adapter.advice,
        quiet_seconds=adapter.quiet_seconds,
        opponent=adapter.opponent,
        security=settings.security,
        outage_bytes=settings.outage_bytes,
        survives_refusals=adapter.survives_refusals,
    )


def _step(adapter: Adapter, actor: Actor) -> None:
    """Waits for the session, and steps until the link stops.

    Raises:
        ActorError: The learner refused the actor, a policy cannot act, or the environments failed too often.
    """
    settings, link = actor.settings, actor.link
    if adapter.connecting and settings.connect_timeout is None:
        structlog.get_logger().info("connecting", address=settings.learner, **adapter.connecting)
    run = link.open(settings.connect_timeout)
    if adapter.lockstep_fault and run.assignment.lockstep_quota_steps:
        raise ActorError(
            ExitCode.REFUSED,
            f"run {run.run_id} is in lock-step (rollcast.lockstep in its run file), which {adapter.lockstep_fault}",
        )
    try:
        adapter.step(actor, run)
    except PolicyUnusable as error:
        raise ActorError(ExitCode.POLICY_FAILED, str(error)) from None
    if link.error is not None:
        raise link.error


def behavior_of_run(run: RunInfo, own: str, choose: str) -> str:
    """Returns the behavior of agents for which the user chose none: the run's only one, or the environment's own name.

    Args:
        run: The run.
        own: The environment's own name.
        choose: How to choose a behavior, for the message.

    Raises:
        ActorError: The run has several behaviors.
    """
    if len(run.behaviors) > 1:
        names = ", ".join(run.behaviors)
        raise ActorError(ExitCode.USAGE, f"run {run.run_id} has the behaviors {names}; {choose}")
    return run.behaviors[0] if run.behaviors else own
