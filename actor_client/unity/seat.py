"""What the stepping thread keeps of one player, over all its lives."""

from rollcast.v1 import policy_pb2, session_pb2

from actor_client.unity.channels.hub import SideChannels


class Seat:
    """One player, as the stepping thread sees it.

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
