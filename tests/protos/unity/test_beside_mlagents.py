"""Tests that Unity's messages load next to those of ML-Agents' package."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

MLAGENTS = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="{file}", package="communicator_objects", syntax="proto3")
for name in ("AgentInfoProto", "UnityMessageProto", "ObservationProto", "BrainParametersProto"):
    message = file.message_type.add(name=name)
    message.field.add(name="other", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
"""
OURS = """
import actor_client.unity.conversation, rollcast.demonstrations.reading, rollcast.demonstrations.writing
from rollcast.unity.communicator_objects import training_analytics_pb2
"""


@pytest.mark.parametrize(
    "file", ["mlagents_envs/communicator_objects/unity_message.proto", "communicator_objects/agent.proto"]
)
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_the_names_of_mlagents_stay_free(file: str, first: str) -> None:
    """All names of Unity's messages are below `rollcast`."""
    theirs = MLAGENTS.format(file=file)
    program = OURS + theirs if first == "ours" else theirs + OURS
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
