"""What an actor is like at one moment, for a scrape."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from actor_client.connection.books import BooksView
from actor_client.counts import ConnectionCounts, RolloutCounts


@dataclass(frozen=True, slots=True)
class ActorSnapshot:
    """An actor at one moment.

    Attributes:
        rollout: What the stepping thread counted.
        connection: What the connection's thread counted.
        books: Of all behaviors, over the life of the process, each behavior's of one moment.
        chunks_unacked: Chunks that are kept.
        credit_steps: Steps that may be taken before more credit is needed.
        held: Reasons of the holds that keep the actor from stepping.
        is_uploading: The upload stream is open.
        is_subscribed: The policy stream is open.
        policy_version: The version that acts; 0 before there is one, or for the untrained one.
        rejected: Rows refused by the learner in acks, by reason; they are acked in the books.
    """

    rollout: RolloutCounts = field(default_factory=RolloutCounts)
    connection: ConnectionCounts = field(default_factory=ConnectionCounts)
    books: BooksView = field(default_factory=BooksView)
    chunks_unacked: int = 0
    credit_steps: int = 0
    held: frozenset[str] = frozenset()
    is_uploading: bool = False
    is_subscribed: bool = False
    policy_version: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
