"""What one actor is asked to play. Made by whoever evaluates, carried to the actor by the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Order:
    """A share of an evaluation: so many whole episodes of each behavior id of a session.

    Attributes:
        session_id: whose.
        episodes: of each behavior id.
        versions: generation and version of the policy of each behavior to be measured; others act with their newest.
        is_deterministic: the mode of the distribution acts.
        assignment_id: what the service sent it as, and what comes back in records; 0 before it was sent.
    """

    session_id: str
    episodes: int
    versions: Mapping[str, tuple[int, int]]
    is_deterministic: bool
    assignment_id: int = 0
