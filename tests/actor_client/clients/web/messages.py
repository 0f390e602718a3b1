"""Messages of a client of CartPole, in JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from rollcast.v1.client_pb2 import PlayRequest

JSON = "rollcast.v1.json"
HELLO: dict[str, Any] = {
    "hello": {
        "name": "a test",
        "behaviors": [
            {
                "name": "CartPole",
                "observations": [
                    {"name": "state", "dtype": "DTYPE_FLOAT32", "shape": ["4"], "kind": "OBSERVATION_KIND_VECTOR"}
                ],
                "action": {"discreteBranches": [2]},
            }
        ],
    }
}
STEP: dict[str, Any] = {"steps": [{"behavior": "CartPole", "agents": [0], "values": [0.1, 0, 0, 0], "rewards": [1]}]}
ENDED: dict[str, Any] = {
    "steps": [
        {
            "behavior": "CartPole",
            "agents": [0, 0],
            "states": ["AGENT_STATE_ENDED", "AGENT_STATE_UNSPECIFIED"],
            "values": [0.1, 0, 0, 0, 0, 0, 0, 0],
            "rewards": [1, 0],
        }
    ]
}


def binary(message: dict[str, Any]) -> bytes:
    """Returns a message as bytes."""
    return json_format.ParseDict(message, PlayRequest()).SerializeToString()
