"""Stop 10 of a step's way: where trainers leave policy versions, and the service finds them.

This is one of the two places where the service and the trainers meet (the other is `learner.ingest.queue`). Only
descriptions and bytes pass.
"""

from __future__ import annotations

import threading
from collections import deque

from rollcast.errors import VersionEvicted

from learner.ingest.wakeup import Wakeup
from learner.link.policies import StoredPolicy

KEPT_VERSIONS = 8


class VersionOrderError(ValueError):
    """A trainer published a version that is not newer than the last one."""


class PolicyStore:
    """The newest versions of each behavior, by name; written by trainer threads, read by any.

    Args:
        kept_versions: versions of a behavior that stay available to `get`.
        wakeup: set with each publication; one of its own if None.
    """

    def __init__(self, kept_versions: int = KEPT_VERSIONS, wakeup: Wakeup | None = None) -> None:
        self.wakeup = Wakeup() if wakeup is None else wakeup
        self._kept_versions = kept_versions
        self._lock = threading.Lock()
        self._rings: dict[str, deque[StoredPolicy]] = {}
        self._pinned: dict[str, StoredPolicy] = {}

    def pin(self, behavior: str) -> StoredPolicy | None:
        """Keeps the newest version of a behavior available to `get` until `unpin`; one is kept at a time.

        Returns:
            The version; None before the first publication.
        """
        with self._lock:
            ring = self._rings.get(behavior)
            if not ring:
                return None
            self._pinned[behavior] = ring[-1]
            return ring[-1]

    def unpin(self, behavior: str) -> None:
        """Lets go of what was pinned."""
        with self._lock:
            self._pinned.pop(behavior, None)

    def publish(self, policy: StoredPolicy) -> None:
        """Makes a version the newest of its behavior.

        Raises:
            VersionOrderError: it is not newer than the newest one, by generation and then by version.
        """
        new = policy.description
        with self._lock:
            ring = self._rings.setdefault(new.behavior, deque(maxlen=self._kept_versions))
            if ring:
                old = ring[-1].description
                if (new.generation, new.version) <= (old.generation, old.version):
                    raise VersionOrderError(
                        f"{new.behavior}: version {new.version} of generation {new.generation} does not follow version "
                        f"{old.version} of generation {old.generation}"
                    )
            ring.append(policy)
        self.wakeup.set()

    def latest(self, behavior: str) -> StoredPolicy | None:
        """Returns the newest version of a behavior; None before the first publication."""
        with self._lock:
            ring = self._rings.get(behavior)
            return ring[-1] if ring else None

    def get(self, behavior: str, generation: int = 0, version: int = 0) -> StoredPolicy:
        """Returns a pinned version.

        Args:
            behavior: the name, without a team.
            generation: 0 means that of the newest version.
            version: 0 means the newest version.

        Raises:
            VersionEvicted: it is not held: too old, or not published yet.
        """
        with self._lock:
            ring = tuple(self._rings.get(behavior, ()))
            pinned = self._pinned.get(behavior)
        if ring and version == 0 and generation in {0, ring[-1].description.generation}:
            return ring[-1]
        wanted_generation = generation or (ring[-1].description.generation if ring else 0)
        for policy in ring if pinned is None else (*ring, pinned):
            found = policy.description
            if (found.generation, found.version) == (wanted_generation, version):
                return policy
        held = [policy.description.version for policy in ring if policy.description.generation == wanted_generation]
        span = f"versions {held[0]} to {held[-1]} are held" if held else "no version of that generation is held"
        raise VersionEvicted(
            f"version {version} of {behavior}, generation {wanted_generation}, is not held; {span}: ask for one of "
            "these, or for 0, the newest",
            metadata={"behavior": behavior, "version": str(version), "generation": str(wanted_generation)},
        )

    def behaviors(self) -> tuple[str, ...]:
        """Returns the names of the behaviors that have a policy."""
        with self._lock:
            return tuple(self._rings)
