"""Sends a trainer's policies to the service: exported and verified once, spliced for each version."""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog
from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.link.to_front import Policy, Send
from learner.shared.policies import StoredPolicy
from learner.training.export.describe import Progress
from learner.training.export.onnx import PolicyExporter
from learner.training.networks.policy import PolicyNetwork

log = structlog.get_logger(__name__)


class PolicyPublisher:
    """Publishes the versions of one behavior.

    Args:
        network: The acting network; its graph is exported and verified.
        send: Sends a message to the service.
        template: Description of the network without the numbers of a version; see `describe`.

    Raises:
        PolicyCheckFailed: The exported policy does not compute what the network computes.
    """

    def __init__(self, network: PolicyNetwork, send: Send, template: PolicyDescription) -> None:
        self._send = send
        self._newest: StoredPolicy | None = None
        began = time.monotonic()
        self._exporter = PolicyExporter(network, template)
        self._exporter.verify()
        seconds = round(time.monotonic() - began, 2)
        log.info("policy_exported", behavior=template.behavior, seconds=seconds)

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Makes a version available to actors.

        Args:
            state: The network's ``state_dict``, on any device.
            progress: Numbers for its header.
            keep: Keeps this version available until its behavior is released, even after newer versions.

        Returns:
            Header of the version.

        Raises:
            UserError: A weight is not finite.
        """
        description, payload = self._exporter.render_version(state, progress)
        self._newest = StoredPolicy(description, payload)
        self._send(Policy(self._newest, keep=keep))
        return description

    @property
    def newest(self) -> StoredPolicy:
        """The newest version; available after the first publication."""
        if self._newest is None:
            raise LookupError("nothing is published yet")
        return self._newest

    def keep(self) -> None:
        """Keeps the newest version available until its behavior is released."""
        if self._newest is not None:
            self._send(Policy(self._newest, keep=True))
