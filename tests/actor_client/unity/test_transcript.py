"""Replays a recorded session between a player and ML-Agents' trainer against the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from rollcast.unity.communicator_objects.unity_message_pb2 import RESET, UnityMessageProto

from actor_client.unity.channels.framing import unpack
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.channels.test_records import RECORDED_ENGINE, recorded_assignment
from tests.actor_client.unity.harness import serving

FILE = Path(__file__).with_name("transcript.txt")
ANALYTICS = UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")
FAKE = "Fake?team=0"
HOLD = 1


def transcript() -> dict[str, tuple[bytes, UnityMessageProto]]:
    """Returns what the player said and what was answered, by name of the exchange."""
    lines = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    said = {name: bytes.fromhex(data) for name, side, data in lines if side == "player"}
    answered = {name: bytes.fromhex(data) for name, side, data in lines if side == "trainer"}
    return {name: (said[name], UnityMessageProto.FromString(answered[name])) for name in said}


def apart(message: UnityMessageProto) -> tuple[UnityMessageProto, Any, list[tuple[UUID, bytes]]]:
    """Returns a message without actions and side channels, its actions, and its records without the optional ones."""
    bare = UnityMessageProto()
    bare.CopyFrom(message)
    bare.unity_input.rl_input.agent_actions.clear()
    bare.unity_input.rl_input.side_channel = b""
    told = message.unity_input.rl_input
    records = [(channel, payload) for channel, payload in unpack(told.side_channel) if channel != ANALYTICS]
    return bare, told.agent_actions, sorted(records, key=lambda record: record[0])


def check_actions(ours: Any, theirs: Any) -> None:
    """Checks that the actions have the recorded number, fields and range, and obey the recorded masks."""
    assert ours.keys() == theirs.keys()
    for behavior_id, listed in theirs.items():
        for action, recorded in zip(ours[behavior_id].value, listed.value, strict=True):
            assert len(action.continuous_actions) == len(recorded.continuous_actions)
            assert len(action.discrete_actions) == len(recorded.discrete_actions)
            assert all(-1 <= value <= 1 for value in action.continuous_actions)
            assert list(action.vector_actions_deprecated) == [*action.continuous_actions, *action.discrete_actions]
    first = ours[FAKE].value[0]
    assert first.discrete_actions[0] in {1, 2}
    assert first.discrete_actions[1] == 0


def test_the_recorded_session_is_answered_as_it_was() -> None:
    """Greeting, reset with side channels, three steps and the end equal the recorded ones."""
    said = transcript()
    with ScriptedLearner() as learner:
        learner.engine, learner.assignment = RECORDED_ENGINE, recorded_assignment()
        with serving(learner) as served, served.player() as player:
            request, wanted = said["init"]
            assert player.raw(request) == wanted
            request, wanted = said["reset"]
            answer = player.raw(request)
            assert answer.unity_input.rl_input.command == RESET
            assert apart(answer) == apart(wanted)
            for name in ("step_0", "step_1", "step_2"):
                request, wanted = said[name]
                coming = player.soon(UnityMessageProto.FromString(request))
                if name == "step_0":
                    served.publish("Fake")
                (ours, actions, _), (theirs, recorded, _) = apart(coming.result()), apart(wanted)
                assert ours == theirs
                check_actions(actions, recorded)
            request, wanted = said["step_3"]
            learner.hold(HOLD, active=True)
            learner.wait_until(lambda: bool(served.link.snapshot().held))
            coming = player.soon(UnityMessageProto.FromString(request))
            learner.wait_until(lambda: served.conversations[0].waiting_since is None)
            served.link.request_stop("as recorded")
            assert coming.result() == wanted
