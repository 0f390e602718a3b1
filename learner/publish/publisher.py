"""Takes a trainer's policies to the store: exported and verified once, spliced for each version."""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog
from rollcast.enums import Squash
from torch import Tensor

from learner.link.policies import StoredPolicy
from learner.networks.policy import PolicyNetwork
from learner.publish.describe import Progress, describe
from learner.publish.onnx import PolicyExporter
from learner.publish.store import PolicyStore

log = structlog.get_logger(__name__)


class PolicyPublisher:
    """Publishes the versions of one behavior.

    Args:
        network: what acts; its graph is exported and verified.
        store: where they go.
        behavior_index: the behavior's number in this run.
        generation: the learner's start.
        deterministic: actors take the mode of the distribution.
        squash: what is done to a continuous draw first; None goes by the network.
        memory_stride: rows between two records of memory.

    Raises:
        PolicyCheckFailed: the exported policy does not compute what the network computes.
    """

    def __init__(
        self,
        network: PolicyNetwork,
        store: PolicyStore,
        *,
        behavior_index: int,
        generation: int,
        deterministic: bool = False,
        squash: Squash | None = None,
        memory_stride: int = 0,
    ) -> None:
        self._store = store
        began = time.monotonic()
        template = describe(
            network,
            behavior_index=behavior_index,
            generation=generation,
            deterministic=deterministic,
            squash=squash,
            memory_stride=memory_stride,
        )
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
