"""What one message of a player says, decoded in the thread of its call."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog
from communicator_objects.agent_pb2 import AgentInfoProto
from communicator_objects.behavior_pb2 import BrainParametersProto
from communicator_objects.unity_message_pb2 import UnityOutputProto

from actor_client.unity.faults import BadPlayerData
from actor_client.unity.specs import shown
from actor_client.unity.steps import BehaviorForm, BehaviorStep, form_of

MAX_BEHAVIORS: Final = 1024
"""Of one player, teams counted apart; a player that makes them up cannot fill the memory."""


class Part(NamedTuple):
    """What a message says of one behavior id."""

    form: BehaviorForm
    step: BehaviorStep


class PlayerStep(NamedTuple):
    """What a message says.

    Attributes:
        parts: One a behavior id, in no order.
        side_channel: Records of side channels, as they came.
    """

    parts: list[Part]
    side_channel: bytes


class PlayerReader:
    """Reads the messages of one life of a player; it remembers the behaviors that came. One thread at a time reads.

    Args:
        worker: Which player of this process it is.
        package_version: Of its ML-Agents package.
    """

    def __init__(self, worker: int, package_version: str) -> None:
        self._worker = worker
        self._package_version = package_version
        self._brains: dict[str, BrainParametersProto] = {}
        self._forms: dict[str, BehaviorForm] = {}

    def read(self, output: UnityOutputProto) -> PlayerStep:
        """Returns what a message says.

        Raises:
            BadPlayerData: It cannot be used, in one line.
        """
        for brain in output.rl_initialization_output.brain_parameters:
            self._brains[brain.brain_name] = brain
        if len(self._brains) > MAX_BEHAVIORS:
            raise BadPlayerData(f"player {self._worker} has more than {MAX_BEHAVIORS} behaviors; have fewer")
        parts = []
        for behavior_id, infos in output.rl_output.agentInfos.items():
            agents = infos.value
            if not agents:
                continue
            form = self._forms.get(behavior_id)
            if form is None:
                form = self._forms[behavior_id] = self._new_form(behavior_id, agents)
            step = form.read(agents)
            for fault in step.faults:
                structlog.get_logger().warning("player_data", worker=self._worker, fault=fault)
            parts.append(Part(form, step))
        return PlayerStep(parts, output.rl_output.side_channel)

    def _new_form(self, behavior_id: str, agents: Sequence[AgentInfoProto]) -> BehaviorForm:
        brain = self._brains.get(behavior_id)
        if brain is None:
            raise BadPlayerData(
                f"player {self._worker}: agents of behavior {shown(behavior_id)} came before the behavior was told of; "
                "start the player again"
            )
        return form_of(behavior_id, brain, agents, self._package_version)
