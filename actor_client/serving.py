"""Serves an actor's metrics while it works."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import structlog

from actor_client.connection.link import LearnerLink
from actor_client.heartbeat import STUCK_SECONDS, Heartbeat
from actor_client.settings.common import CommonSettings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

REVISION_VARIABLE: Final = "ROLLCAST_REVISION"
"""Set by whoever builds an image; names the commit it was built from."""


@contextmanager
def served_metrics(
    settings: CommonSettings,
    link: LearnerLink,
    heartbeat: Heartbeat,
    env: str,
    more: Callable[[], "Collector"] | None = None,
) -> Iterator[None]:
    """Serves metrics until the block ends, unless they are switched off.

    Args:
        settings: Where to serve them.
        link: Whose numbers they are.
        heartbeat: Of the stepping thread.
        env: The environment's name, as it labels the build.
        more: Makes metrics of this command's own; not called where metrics are off.

    Raises:
        ActorError: The address that was asked for cannot be had.
    """
    endpoint = settings.metrics_endpoint
    if endpoint is None:
        yield
        return
    # Here, because who switches metrics off need not pay for the client library.
    from actor_client.metrics import ActorBuild, ActorMetrics  # noqa: PLC0415
    from actor_client.metrics_server import MetricsServer  # noqa: PLC0415

    build = ActorBuild(version("rollcast"), os.environ.get(REVISION_VARIABLE, "unknown"), env)
    metrics = ActorMetrics(build, link.snapshot)
    if more is not None:
        metrics.registry.register(more())
    host, port = endpoint
    server = MetricsServer(
        host,
        port,
        metrics=metrics.exposition,
        is_well=lambda: heartbeat.age_seconds < STUCK_SECONDS,
        may_move=settings.may_move_metrics,
    )
    structlog.get_logger().info("metrics", url=f"http://{f'[{host}]' if ':' in host else host}:{server.port}/metrics")
    try:
        yield
    finally:
        server.close()
