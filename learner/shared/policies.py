"""The policy version that trainers send to the service, and the key of one that is kept for matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rollcast.policies import PolicyDescription


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """Names one policy file among all of its behavior.

    Attributes:
        generation: Generation of the learner that published it; 0 for a file from elsewhere.
        version: Its version; 0 for an untrained policy.
        sha256: Digest of its bytes, which alone is unique.
    """

    generation: int
    version: int
    sha256: bytes

    @classmethod
    def of(cls, description: PolicyDescription) -> Self:
        """Returns the key of a published version."""
        return cls(description.generation, description.version, description.sha256)


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """One version of one behavior's policy.

    Attributes:
        description: Complete header (`rollcast.policies.describe_payload`).
        payload: Encoded bytes.
    """

    description: PolicyDescription
    payload: bytes

    @property
    def key(self) -> PolicyKey:
        """The key under which it is kept."""
        return PolicyKey.of(self.description)
