"""What the trainers hand to the service with each new version of a policy."""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.policies import PolicyDescription


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """One version of one behavior's policy.

    Attributes:
        description: its header, complete (`rollcast.policies.describe_payload`).
        payload: the bytes as they travel.
    """

    description: PolicyDescription
    payload: bytes
