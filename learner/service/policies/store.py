"""Stop 10 of a step's path: keeps the policy versions that trainers send to the service."""

from __future__ import annotations

import threading
from collections import deque

from rollcast.errors import VersionEvicted
from rollcast.policies import PolicyDescription

from learner.shared.policies import PolicyKey, StoredPolicy

KEPT_VERSIONS = 8


class VersionOrderError(ValueError):
    """A trainer published a version that is not newer than the last one; a fault in the learner's code."""


class PolicyStore:
    """The newest versions of each behavior, by name; written by the event loop, read by any thread.

    Args:
        kept_versions: Versions of a behavior that stay available to `get`.
    """

    def __init__(self, kept_versions: int = KEPT_VERSIONS) -> None:
        self._kept_versions = kept_versions
        self._lock = threading.Lock()
        self._rings: dict[str, deque[StoredPolicy]] = {}
        self._kept: dict[str, StoredPolicy] = {}

    def publish(self, policy: StoredPolicy, *, keep: bool = False) -> None:
        """Makes a version the newest of its behavior.

        Args:
            policy: The version.
            keep: Keeps the version available to `get` until `release`; one version of a behavior is kept at a time. The
                newest version may be published again to be kept.

        Raises:
            VersionOrderError: The version is not newer than the newest one, by generation and then by version.
        """
        new = policy.description
        with self._lock:
            ring = self._rings.setdefault(new.behavior, deque(maxlen=self._kept_versions))
            if not (keep and ring and ring[-1].description == new):
                if ring:
                    _check_order(ring[-1].description, new)
                ring.append(policy)
            if keep:
                self._kept[new.behavior] = ring[-1]

    def release(self, behavior: str) -> None:
        """Releases the kept version."""
        with self._lock:
            self._kept.pop(behavior, None)

    def latest(self, behavior: str) -> StoredPolicy | None:
        """Returns the newest version of a behavior; None before the first publication."""
        with self._lock:
            ring = self._rings.get(behavior)
            return ring[-1] if ring else None

    def get(self, behavior: str, generation: int = 0, version: int = 0) -> StoredPolicy:
        """Returns a version.

        Args:
            behavior: Name of the behavior, without a team.
            generation: 0 means the generation of the newest version.
            version: 0 means the newest version.

        Raises:
            VersionEvicted: The version is not in the store: it is too old, or not published yet.
        """
        with self._lock:
            ring = tuple(self._rings.get(behavior, ()))
            kept = self._kept.get(behavior)
        if ring and version == 0 and generation in {0, ring[-1].description.generation}:
            return ring[-1]
        wanted_generation = generation or (ring[-1].description.generation if ring else 0)
        for policy in ring if kept is None else (*ring, kept):
            found = policy.description
            if (found.generation, found.version) == (wanted_generation, version):
                return policy
        held = [policy.description.version for policy in ring if policy.description.generation == wanted_generation]
        span = f"versions {held[0]} to {held[-1]} are available" if held else "that generation has no version"
        raise VersionEvicted(
            f"version {version} of {behavior}, generation {wanted_generation}, is not available; {span}: request an "
            "available version, or 0 for the newest",
            metadata={"behavior": behavior, "version": str(version), "generation": str(wanted_generation)},
        )

    def find(self, behavior: str, key: PolicyKey) -> StoredPolicy | None:
        """Returns the version with exactly this key; None if it is not in the store."""
        with self._lock:
            held = (*self._rings.get(behavior, ()), *filter(None, (self._kept.get(behavior),)))
        return next((policy for policy in held if policy.key == key), None)

    def behaviors(self) -> tuple[str, ...]:
        """Returns the names of the behaviors that have a policy."""
        with self._lock:
            return tuple(self._rings)


def _check_order(old: PolicyDescription, new: PolicyDescription) -> None:
    if (new.generation, new.version) <= (old.generation, old.version):
        raise VersionOrderError(
            f"{new.behavior}: version {new.version} of generation {new.generation} does not follow version "
            f"{old.version} of generation {old.generation}"
        )
