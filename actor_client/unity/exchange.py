"""Players as the stepping thread sees them, and the messages that it answers."""

from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto, UnityRLInputProto
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.policy.actions import Actions
from actor_client.unity import replies
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.mailbox import Post


class Player:
    """One player as the stepping thread sees it, across its restarts.

    Args:
        worker: The player's number in this actor.
        channels: Its side channels.

    Attributes:
        worker: The player's number in this actor.
        channels: Its side channels.
        is_running: Its agents may report, because its second message was answered.
        reset_due: Its next exchange is answered with a reset.
        revision: Revision of the environment parameters that were sent to it.
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
        """Queues everything that a player needs before its first scene."""
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
        """Returns the side-channel bytes of an answer; episodes that begin after it use these parameters."""
        self.revision = self._told
        return self.channels.take()

    def leave(self) -> None:
        """Marks the player as gone."""
        self.is_running = self.reset_due = False


def write_actions(reply: UnityRLInputProto, behavior_id: str, actions: Actions) -> None:
    """Adds the actions of one behavior to an answer, unless it has no agents: players index each entry.

    Field 1 repeats both kinds as floats, continuous ones first, for players before API version 1.3.

    Args:
        reply: The answer to the player.
        behavior_id: The player's name of the behavior.
        actions: Actions of n agents, in the order in which they asked.
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
        player: The sender.

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
        """Adds the actions of one behavior; returns whether all actions are present."""
        write_actions(self._reply.unity_input.rl_input, behavior_id, actions)
        self.open_parts -= 1
        return not self.open_parts

    def answer(self) -> None:
        """Lets the player continue; sends its side-channel records."""
        if side_channel := self.simulator.take():
            self._reply.unity_input.rl_input.side_channel = side_channel
        self._post.answer(self._reply)

    def answer_reset(self) -> None:
        """Resets the player; actions chosen in the meantime are dropped."""
        self.simulator.reset_due = False
        self._post.answer(replies.reset(self.simulator.take()))
