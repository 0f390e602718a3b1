"""Keys of policies for tests."""

from __future__ import annotations

import hashlib

from learner.shared.policies import PolicyKey


def key(version: int, generation: int = 1) -> PolicyKey:
    """Returns the key of a policy."""
    return PolicyKey(generation, version, hashlib.sha256(f"{generation}/{version}".encode()).digest())
