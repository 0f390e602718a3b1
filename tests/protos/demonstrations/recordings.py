"""Behaviors and demonstration files for tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rollcast.demonstrations.framing import BRAIN_POSITION, delimited
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.unity.communicator_objects.agent_pb2 import AgentActionProto, AgentInfoProto
from rollcast.unity.communicator_objects.behavior_pb2 import ActionSpecProto, BrainParametersProto
from rollcast.unity.communicator_objects.demonstration_pb2 import AgentInfoActionPairProto, DemonstrationMetaProto
from rollcast.unity.communicator_objects.observation_pb2 import ObservationProto

AXIS = BehaviorSpec("Axis", (ObservationSpec("state", np.dtype(np.float32), (1,)),), ActionSpec(continuous_size=1))
BRANCH = BehaviorSpec(
    "Branch", (ObservationSpec("state", np.dtype(np.float32), (1,)),), ActionSpec(discrete_branches=(5,))
)


def record(
    seen: float | ObservationProto,
    done: bool = False,
    *,
    axes: Sequence[float] = (),
    choices: Sequence[int] = (),
    **info: float,
) -> AgentInfoActionPairProto:
    """Returns a record of an agent with one observation."""
    if not isinstance(seen, ObservationProto):
        data = ObservationProto.FloatData(data=[seen])
        seen = ObservationProto(shape=[1], dimension_properties=[1], float_data=data, name="state")
    return AgentInfoActionPairProto(
        agent_info=AgentInfoProto(observations=[seen], done=done, **info),  # type: ignore[arg-type]
        action_info=AgentActionProto(continuous_actions=axes, discrete_actions=choices),
    )


def demonstration(
    path: Path,
    spec: BehaviorSpec,
    records: Sequence[AgentInfoActionPairProto],
    *,
    announced: int | None = None,
    brain: BrainParametersProto | None = None,
) -> Path:
    """Writes a file as Unity would: the head, the brain at byte 33, the records."""
    action = spec.action
    meta = DemonstrationMetaProto(api_version=1, number_steps=len(records) if announced is None else announced)
    told = brain or BrainParametersProto(
        brain_name=spec.name,
        action_spec=ActionSpecProto(
            num_continuous_actions=action.continuous_size,
            num_discrete_actions=len(action.discrete_branches),
            discrete_branch_sizes=action.discrete_branches,
        ),
    )
    head = delimited(meta).ljust(BRAIN_POSITION, b"\0")
    path.write_bytes(head + delimited(told) + b"".join(map(delimited, records)))
    return path
