"""Plays deterministic episodes of a run's Unity model without Rollcast's service."""

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from rollcast.specs import BehaviorSpec

from actor_client.demos.policies import ModelPolicy
from actor_client.envs.spaces import ObservationPlan, plan_actions
from actor_client.exits import ActorError
from tests.tools.bench.measurement import MeasurementFailed


def make(env: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Makes an environment from the value of ``--env``."""
    module, colon, name = env.partition(":")
    if not colon:
        return gymnasium.make(env, **env_kwargs)
    made: gymnasium.Env[Any, Any] = getattr(importlib.import_module(module), name)(**env_kwargs)
    return made


def play(model: Path, environment: gymnasium.Env[Any, Any], seeds: Iterable[int]) -> list[float]:
    """Plays one episode from each start, with the model's most likely actions, and returns their returns.

    Args:
        model: The ONNX file.
        environment: Where it acts.
        seeds: Of the starts.

    Raises:
        MeasurementFailed: There is no model, or it cannot play the environment.
    """
    observations, actions = ObservationPlan(environment.observation_space), plan_actions(environment.action_space)
    try:
        policy = ModelPolicy(model, BehaviorSpec("", observations.specs, actions.spec), 1)
    except ActorError as error:
        raise MeasurementFailed(error.message) from error
    returns = []
    for seed in seeds:
        policy.ended([0])
        observation, total, is_over = environment.reset(seed=seed)[0], 0.0, False
        while not is_over:
            chosen = policy.act(observations.encode([observation]), None)
            (action,) = actions.singles(chosen.continuous, chosen.discrete)
            observation, reward, terminated, truncated, _ = environment.step(action)
            total, is_over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns
