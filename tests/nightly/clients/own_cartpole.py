"""Gymnasium's CartPole-v1 with the observation's name that the clients give it."""

from __future__ import annotations

from typing import Any

import gymnasium


def make() -> gymnasium.Env[Any, Any]:
    """Returns the environment."""
    env = gymnasium.make("CartPole-v1")
    space = gymnasium.spaces.Dict({"state": env.observation_space})
    return gymnasium.wrappers.TransformObservation(env, lambda state: {"state": state}, space)
