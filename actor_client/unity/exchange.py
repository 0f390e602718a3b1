"""A message of a player on its way through the stepping thread."""

from communicator_objects.unity_message_pb2 import UnityMessageProto

from actor_client.policy.actions import Actions
from actor_client.unity import handshake
from actor_client.unity.actions import write_actions
from actor_client.unity.mailbox import Post
from actor_client.unity.seat import Seat


class Exchange:
    """One message of a player that is answered once all its agents have actions.

    Args:
        post: The message.
        seat: Of the player.

    Attributes:
        simulator: The seat.
        open_parts: Behaviors whose agents still need actions.
    """

    __slots__ = ("_post", "_reply", "open_parts", "simulator")

    def __init__(self, post: Post, seat: Seat) -> None:
        self._post = post
        self.simulator = seat
        self.open_parts = 0
        self._reply: UnityMessageProto = handshake.step()

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior; returns whether all are there now."""
        write_actions(self._reply.unity_input.rl_input, behavior_id, actions)
        self.open_parts -= 1
        return not self.open_parts

    def answer(self) -> None:
        """Lets the player go on, with what its side channels have to say."""
        if side_channel := self.simulator.take():
            self._reply.unity_input.rl_input.side_channel = side_channel
        self._post.answer(self._reply)

    def answer_reset(self) -> None:
        """Makes the player begin again; actions chosen meanwhile are of no use."""
        self.simulator.reset_due = False
        self._post.answer(handshake.reset(self.simulator.take()))
