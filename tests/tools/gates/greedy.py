"""Plays deterministic episodes of a run's Unity model without Rollcast's service."""

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import SessionOptions

from tests.tools.bench.measurement import MeasurementFailed

_MAX_EPISODE_STEPS = 10_000


def make(env: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Makes an environment from the value of ``--env``."""
    module, colon, name = env.partition(":")
    if not colon:
        return gymnasium.make(env, **env_kwargs)
    made: gymnasium.Env[Any, Any] = getattr(importlib.import_module(module), name)(**env_kwargs)
    return made


def play(model: Path, env: str, env_kwargs: Mapping[str, Any], seeds: Iterable[int]) -> list[float]:
    """Plays one episode from each start, with the model's most likely actions, and returns their returns.

    Args:
        model: The ONNX file.
        env: What actors are told by ``--env``; it shows one vector.
        env_kwargs: Of the environment.
        seeds: Of the starts.

    Raises:
        MeasurementFailed: There is no model, or it wants something else than one vector.
    """
    if not model.exists():
        raise MeasurementFailed(f"the run left no model at {model}")
    environment = make(env, env_kwargs)
    player = _Player(model, environment)
    return [player.episode(seed) for seed in seeds]


class _Player:
    """A model and its environment.

    Args:
        model: The ONNX file.
        environment: Where it acts.
    """

    def __init__(self, model: Path, environment: gymnasium.Env[Any, Any]) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = 1
        self._session = InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._environment = environment
        shapes = {item.name: item.shape for item in self._session.get_inputs()}
        if [name for name in shapes if name.startswith("obs_")] != ["obs_0"]:
            raise MeasurementFailed(f"{model} takes {sorted(shapes)}; deterministic episodes need one vector")
        self._masks = np.ones((1, shapes["action_masks"][1]), np.float32) if "action_masks" in shapes else None
        outputs = [item.name for item in self._session.get_outputs()]
        (self._action,) = (name for name in outputs if name.startswith("deterministic_"))

    def episode(self, seed: int) -> float:
        """Plays one episode from a start and returns its return."""
        observation, _ = self._environment.reset(seed=seed)
        total = 0.0
        for _ in range(_MAX_EPISODE_STEPS):
            feeds = {"obs_0": np.asarray(observation, np.float32).reshape(1, -1)}
            if self._masks is not None:
                feeds["action_masks"] = self._masks
            action = np.asarray(self._session.run([self._action], feeds)[0])[0]
            observation, reward, terminated, truncated, _ = self._environment.step(self._choice(action))
            total += float(reward)
            if terminated or truncated:
                break
        return total

    def _choice(self, action: NDArray[Any]) -> Any:
        """Takes a model's action to what the environment takes: [-1, 1] becomes the bounds of a Box."""
        space = self._environment.action_space
        if isinstance(space, spaces.Box):
            middle, reach = (space.high + space.low) / 2.0, (space.high - space.low) / 2.0
            return (middle + reach * action).astype(space.dtype)
        assert isinstance(space, spaces.Discrete)
        return space.start + np.int64(action[0])
