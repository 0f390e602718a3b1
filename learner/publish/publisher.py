"""Takes a trainer's policies to the store: exported and verified once, spliced for each version."""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog
from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.link.policies import StoredPolicy
from learner.networks.policy import PolicyNetwork
from learner.publish.describe import Progress
from learner.publish.onnx import PolicyExporter
from learner.publish.store import PolicyStore

log = structlog.get_logger(__name__)


class PolicyPublisher:
    """Publishes the versions of one behavior.

    Args:
        network: what acts; its graph is exported and verified.
        store: where they go.
        template: describes the network, but for what differs between versions; see `describe`.

    Raises:
        PolicyCheckFailed: the exported policy does not compute what the network computes.
    """

    def __init__(self, network: PolicyNetwork, store: PolicyStore, template: PolicyDescription) -> None:
        self._store = store
        began = time.monotonic()
        self._exporter = PolicyExporter(network, template)
        self._exporter.verify()
        seconds = round(time.monotonic() - began, 2)
        log.info("the policy is exported and verified", behavior=template.behavior, seconds=seconds)

    def publish(self, state: Mapping[str, Tensor], progress: Progress) -> None:
        """Makes a version available to actors.

        Args:
            state: the network's ``state_dict``, on any device.
            progress: the numbers of its header.

        Raises:
            UserError: a weight is not finite.
            VersionOrderError: the version is not newer than the last one.
        """
        description, payload = self._exporter.render_version(
            state,
            version=progress.version,
            optimizer_steps=progress.optimizer_steps,
            env_steps_trained=progress.env_steps_trained,
        )
        self._store.publish(StoredPolicy(description, payload))
