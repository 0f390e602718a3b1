"""Replays a recorded session between a player and ML-Agents' trainer against the gateway."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from rollcast.unity.communicator_objects.unity_message_pb2 import RESET, UnityMessageProto
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.unity.channels.framing import unpack
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.harness import Caller, Served, serving

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


def recorded_settings(learner: ScriptedLearner) -> None:
    """Returns the settings under which the session was recorded."""
    uniform, multi = policy_pb2.UniformSampler, policy_pb2.MultiRangeSampler
    learner.engine = session_pb2.EngineSettings(
        width=84, height=84, quality_level=5, time_scale=20, target_frame_rate=-1, capture_frame_rate=60
    )
    learner.assignment = policy_pb2.Assignment(
        environment_parameters={
            "mass": policy_pb2.Sampler(constant=1.5),
            "scale": policy_pb2.Sampler(uniform=uniform(low=0.75, high=3), seed=42),
            "g": policy_pb2.Sampler(gaussian=policy_pb2.GaussianSampler(mean=1, st_dev=2), seed=43),
            "mr": policy_pb2.Sampler(
                multi_range=multi(intervals=[uniform(low=1, high=2), uniform(low=4, high=5)]), seed=44
            ),
        },
        parameter_order=["mass", "scale", "g", "mr"],
    )


def records(side_channel: bytes) -> dict[UUID, list[bytes]]:
    """Returns side-channel records by UUID, in order, without the optional ones."""
    found: dict[UUID, list[bytes]] = {}
    for channel, payload in unpack(side_channel):
        if channel != ANALYTICS:
            found.setdefault(channel, []).append(payload)
    return found


def check_actions(answer: UnityMessageProto, wanted: UnityMessageProto) -> None:
    """Checks that the actions have the recorded number, fields and range."""
    ours, theirs = (each.unity_input.rl_input.agent_actions for each in (answer, wanted))
    assert ours.keys() == theirs.keys()
    for behavior_id, listed in theirs.items():
        assert len(ours[behavior_id].value) == len(listed.value)
        for action, recorded in zip(ours[behavior_id].value, listed.value, strict=True):
            assert len(action.continuous_actions) == len(recorded.continuous_actions)
            assert len(action.discrete_actions) == len(recorded.discrete_actions)
            assert all(-1 <= value <= 1 for value in action.continuous_actions)
            assert list(action.vector_actions_deprecated) == [*action.continuous_actions, *action.discrete_actions]


def check_masks(answer: UnityMessageProto) -> None:
    """Checks that recorded masks are obeyed."""
    first = answer.unity_input.rl_input.agent_actions[FAKE].value[0]
    assert first.discrete_actions[0] in {1, 2}
    assert first.discrete_actions[1] == 0


def without_actions(message: UnityMessageProto) -> UnityMessageProto:
    """Returns the message without its actions."""
    bare = UnityMessageProto()
    bare.CopyFrom(message)
    bare.unity_input.rl_input.agent_actions.clear()
    bare.unity_input.rl_input.side_channel = b""
    return bare


def test_the_recorded_session_is_answered_as_it_was() -> None:
    """Greeting, reset with side channels, three steps and the end equal the recorded ones."""
    said = transcript()
    with ScriptedLearner() as learner:
        recorded_settings(learner)
        with serving(learner) as served, served.player() as player:
            check_greeting(player, said)
            check_reset(player, said)
            check_steps(served, player, said)
            check_end(served, player, said)


def check_greeting(player: Caller, said: dict[str, tuple[bytes, UnityMessageProto]]) -> None:
    """Checks that the first answer is the recorded one."""
    request, wanted = said["init"]
    assert player.raw(request) == wanted


def check_reset(player: Caller, said: dict[str, tuple[bytes, UnityMessageProto]]) -> None:
    """Checks that the second answer is a reset with the same records for each channel."""
    request, wanted = said["reset"]
    answer = player.raw(request)
    assert answer.unity_input.rl_input.command == RESET
    assert without_actions(answer) == without_actions(wanted)
    ours, theirs = (records(each.unity_input.rl_input.side_channel) for each in (answer, wanted))
    assert ours == theirs


def check_steps(served: Served, player: Caller, said: dict[str, tuple[bytes, UnityMessageProto]]) -> None:
    """Checks that the other answers have as many actions in the same fields."""
    for name in ("step_0", "step_1", "step_2"):
        request, wanted = said[name]
        coming = player.soon(UnityMessageProto.FromString(request))
        if name == "step_0":
            served.publish("Fake")
        answer = coming.result()
        assert without_actions(answer) == without_actions(wanted)
        check_actions(answer, wanted)
        check_masks(answer)


def check_end(served: Served, player: Caller, said: dict[str, tuple[bytes, UnityMessageProto]]) -> None:
    """Checks that an end while the player waits is answered as recorded."""
    request, wanted = said["step_3"]
    served.learner.hold(HOLD, active=True)
    served.learner.wait_until(lambda: bool(served.link.snapshot().held))
    coming = player.soon(UnityMessageProto.FromString(request))
    served.learner.wait_until(lambda: served.conversations[0].waiting_since is None)
    served.link.request_stop("as recorded")
    assert coming.result() == wanted
