"""Puts the status site of a learner together: what it shows, and what its buttons do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.sessions import SessionTable
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.view import RunView
from learner.publish.store import PolicyStore
from learner.run.control import RunControl
from learner.run.setup import gpu_memory
from learner.service.server import LearnerServer
from learner.settings.service import ServiceSettings
from learner.status.run_status import RunStatus
from learner.status.scrape import Scrape, ScrapeSources
from learner.trainers.base import Trainer
from learner.web.learner_hooks import RunHooks, Sources
from learner.web.status_site import StatusSite


@dataclass(frozen=True, slots=True)
class SiteParts:
    """The parts of a learner that its site shows.

    Attributes:
        service: addresses.
        folder: where the operator's token is kept.
        control: what the buttons do.
        behaviors, sessions, store, run_status, metrics: what is shown.
        trainers: by behavior.
        view: returns the status at this moment.
        device: whose memory is shown.
        falls_back: whether another port is taken if the one set is in use.
    """

    service: ServiceSettings
    folder: Path
    control: RunControl
    behaviors: BehaviorTable
    sessions: SessionTable
    store: PolicyStore
    run_status: RunStatus
    metrics: LearnerMetrics
    trainers: Callable[[], Mapping[str, Trainer]]
    view: Callable[[], RunView]
    device: torch.device
    falls_back: bool


def make_site(parts: SiteParts, server: LearnerServer) -> StatusSite:
    """Returns the site, and lets the metrics show the state of all parts."""
    sources = Sources(
        metrics=parts.metrics.exposition,
        is_serving=lambda: server.is_serving,
        last_update=parts.metrics.last_update,
    )
    scraped = ScrapeSources(
        view=parts.view,
        behaviors=parts.behaviors,
        sessions=parts.sessions,
        store=parts.store,
        server=server,
        trainers=parts.trainers,
        checkpoint_seconds=parts.service.checkpoint_seconds,
        gpu=gpu_memory(parts.device),
    )
    parts.metrics.watch(Scrape(scraped).snapshot)
    hooks = RunHooks(
        parts.control,
        parts.behaviors,
        parts.sessions,
        sources,
        history=parts.run_status.history,
        version=version("rollcast"),
    )
    return StatusSite(parts.service, parts.folder, hooks, falls_back=parts.falls_back)
