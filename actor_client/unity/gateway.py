"""The stepping thread of all players: what they report is recorded, acted on in one batch a policy, and answered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollcast.v1 import session_pb2

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.heartbeat import Heartbeat
from actor_client.unity.conversation import Conversation
from actor_client.unity.mailbox import Kind, Mailbox, Post

LOST: str = "env_error"
"""What the books say of rows of a player that failed."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What players are told at their beginning.

    Attributes:
        engine: Settings of the game engine.
        num_areas: How often a player repeats its training area.
    """

    engine: session_pb2.EngineSettings
    num_areas: int = 1


class Gateway:
    """Serves all players of one process until the link stops.

    Args:
        link: The connection; opened already.
        run_info: What `link.open` answered.
        mailbox: Where the conversations put what players say.
        conversations: One a player, workers counted from 0.
        settings: What players are told.
        channels: Makes the side channels of a worker.
        heartbeat: Beaten with each round.
    """

    def __init__(
        self,
        link: LearnerLink,
        run_info: RunInfo,
        mailbox: Mailbox,
        conversations: Sequence[Conversation],
        settings: GatewaySettings,
        *,
        channels: Callable[[int], object] | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._link = link
        self._mailbox = mailbox
        self._conversations = tuple(conversations)

    def run(self) -> None:
        """Steps until the link stops; then sends what is recorded. Called once, in the stepping thread.

        Raises:
            PolicyUnusable: A policy failed on what players show.
        """
        raise NotImplementedError

    def player_lost(self, worker: int, reason: str = LOST) -> None:
        """Gives up the open rows of a player whose process has gone; from any thread.

        Args:
            worker: Which player.
            reason: The word of the books (`discarded{reason}`).
        """
        self._mailbox.put(Post(Kind.LEFT, self._conversations[worker], reason))

    def request_reset(self, worker: int | None = None) -> None:
        """Answers the next exchange of a player, or of all, with a reset; from any thread."""
        chosen = self._conversations if worker is None else (self._conversations[worker],)
        for conversation in chosen:
            self._mailbox.put(Post(Kind.RESET, conversation))
