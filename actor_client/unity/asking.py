"""An exchange on its way through the stepping thread, and the agents in it."""

import numpy as np
from communicator_objects.unity_message_pb2 import UnityMessageProto
from numpy.typing import NDArray

from actor_client.policy.actions import Actions
from actor_client.unity import handshake
from actor_client.unity.actions import write_actions
from actor_client.unity.mailbox import Post
from actor_client.unity.reading import Part
from actor_client.unity.seat import Seat


class Exchange:
    """One message of a player that is answered once all its agents have actions.

    Args:
        post: The message.
        seat: Of the player.

    Attributes:
        post: The same.
        seat: The same.
        open_parts: Behaviors whose agents still need actions.
    """

    __slots__ = ("_reply", "open_parts", "post", "seat")

    def __init__(self, post: Post, seat: Seat) -> None:
        self.post = post
        self.seat = seat
        self.open_parts = 0
        self._reply: UnityMessageProto = handshake.step()

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior; returns whether all are there now."""
        write_actions(self._reply.unity_input.rl_input, behavior_id, actions)
        self.open_parts -= 1
        return not self.open_parts

    def answer(self) -> None:
        """Lets the player go on, with what its side channels have to say."""
        if side_channel := self.seat.take():
            self._reply.unity_input.rl_input.side_channel = side_channel
        self.post.answer(self._reply)

    def answer_reset(self) -> None:
        """Makes the player begin anew; actions chosen meanwhile are of no use."""
        self.seat.reset_due = False
        self.post.answer(handshake.reset(self.seat.take()))


class Asking:
    """The agents of one behavior in one exchange.

    Args:
        exchange: The exchange.
        part: Who asks, and who ended.

    Attributes:
        exchange: The same.
        part: The same.
        revision: Of the environment parameters under which episodes began that begin here.
        slots: What the recorder calls the agents that ask, int64 [n]; None before it knows of them.
    """

    __slots__ = ("exchange", "part", "revision", "slots")

    def __init__(self, exchange: Exchange, part: Part) -> None:
        self.exchange = exchange
        self.part = part
        self.revision = exchange.seat.revision
        self.slots: NDArray[np.int64] | None = None

    @property
    def worker(self) -> int:
        """Of which player."""
        return self.exchange.seat.worker

    @property
    def agents(self) -> int:
        """How many ask, n."""
        return len(self.part.step.decisions.ids)
