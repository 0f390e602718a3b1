"""Players as the stepping thread sees them, and the messages that it answers."""

from communicator_objects.unity_message_pb2 import UnityMessageProto, UnityRLInputProto
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.policy.actions import Actions
from actor_client.unity import replies
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.mailbox import Post


class Player:
    """One player as the stepping thread sees it, over all its lives.

    Args:
        worker: Which player of this process it is.
        channels: Its side channels.

    Attributes:
        worker: The same.
        channels: The same.
        is_running: Its agents may report: it was answered its second message.
        reset_due: Its next exchange is answered with a reset.
        revision: Of the environment parameters that it has been told.
    """

    __slots__ = ("_told", "channels", "is_running", "reset_due", "revision", "worker")

    def __init__(self, worker: int, channels: SideChannels) -> None:
        self.worker = worker
        self.channels = channels
        self.is_running = False
        self.reset_due = False
        self.revision = 0
        self._told = 0

    def begin(self, engine: session_pb2.EngineSettings, assignment: policy_pb2.Assignment, run_seed: int) -> None:
        """Queues all that a player needs before its first scene."""
        self.channels.begin(engine, assignment, run_seed)
        self._told = assignment.settings_revision
        self.is_running, self.reset_due = True, False

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Queues parameters that have changed, and a reset if they ask for one."""
        if self.is_running:
            self.channels.update(assignment)
            self._told = assignment.settings_revision
            self.reset_due |= assignment.reset == policy_pb2.RESET_MODE_NOW

    def take(self) -> bytes:
        """Returns what goes out with an answer; episodes that begin after it have the parameters in it."""
        self.revision = self._told
        return self.channels.take()

    def leave(self) -> None:
        """The player has gone."""
        self.is_running = self.reset_due = False


def write_actions(reply: UnityRLInputProto, behavior_id: str, actions: Actions) -> None:
    """Adds the actions of one behavior to an answer; nothing if there are none, since players index what is there.

    Field 1 repeats both kinds as floats, continuous ones first, for players before API version 1.3.

    Args:
        reply: The answer to the player.
        behavior_id: As the player names it.
        actions: Of n agents, in the order of the agents that asked.
    """
    count = len(actions.log_prob)
    if not count:
        return
    nothing: list[list[int]] = [[]] * count
    continuous = nothing if actions.environment_continuous is None else actions.environment_continuous.tolist()
    discrete = nothing if actions.discrete is None else actions.discrete.tolist()
    values = reply.agent_actions[behavior_id].value
    for axes, choices in zip(continuous, discrete, strict=True):
        values.add(vector_actions_deprecated=axes + choices, continuous_actions=axes, discrete_actions=choices)


class Exchange:
    """One message of a player that is answered once all its agents have actions.

    Args:
        post: The message.
        player: Of the player.

    Attributes:
        simulator: The player.
        open_parts: Behaviors whose agents still need actions.
    """

    __slots__ = ("_post", "_reply", "open_parts", "simulator")

    def __init__(self, post: Post, player: Player) -> None:
        self._post = post
        self.simulator = player
        self.open_parts = 0
        self._reply: UnityMessageProto = replies.step()

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior; returns whether all are there now."""
        write_actions(self._reply.unity_input.rl_input, behavior_id, actions)
        self.open_parts -= 1
        return not self.open_parts

    def answer(self) -> None:
        """Lets the player continue, with the records of its side channels."""
        if side_channel := self.simulator.take():
            self._reply.unity_input.rl_input.side_channel = side_channel
        self._post.answer(self._reply)

    def answer_reset(self) -> None:
        """Makes the player begin again; actions chosen meanwhile are of no use."""
        self.simulator.reset_due = False
        self._post.answer(replies.reset(self.simulator.take()))
