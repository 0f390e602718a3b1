"""Tests vector environments whose values are tensors, as those of GPU simulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rollcast.enums import SegmentEnd

from actor_client.envs.base import EnvBatch
from actor_client.envs.vector import VectorBatch

ENVS = 3
LENGTH = 2
ACTIONS = np.array([[0.5], [-0.5], [0.25]], np.float32)


class OnGpu:
    """A tensor that must be copied to the host before it can be read, as one on a CUDA device."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)
        self.shape = self._values.shape
        self.device = "cuda:0"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor")

    def __getitem__(self, place: Any) -> OnGpu:
        return OnGpu(self._values[place])

    def __len__(self) -> int:
        return len(self._values)

    def cpu(self) -> Any:
        """Returns the values on this side."""
        return self._values


class Simulator:
    """Steps all copies together, as Isaac's environments do; every episode has two steps.

    Args:
        tensor: Makes its tensors.
        mode: Its kind of automatic reset.
        masked: It has two choices, and one is allowed.
    """

    def __init__(self, tensor: Any, mode: str, *, masked: bool = False) -> None:
        self._tensor = tensor
        self._masked = masked
        self.metadata = {"autoreset_mode": mode}
        self.num_envs = ENVS
        self.single_observation_space = spaces.Dict(
            {"policy": spaces.Box(-np.inf, np.inf, (2,), np.float32), "zone": spaces.Discrete(9, start=2)}
        )
        self.single_action_space = spaces.Discrete(2) if masked else spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.actions: list[Any] = []
        self._steps = 0

    def _show(self) -> Any:
        numbers = np.full((ENVS, 2), self._steps, np.float32) + np.arange(ENVS, dtype=np.float32)[:, None]
        return {"policy": self._tensor(numbers), "zone": self._tensor(np.arange(2, 2 + ENVS))}

    def _infos(self) -> dict[str, Any]:
        return {"action_mask": self._tensor(np.array([[0, 1]] * ENVS))} if self._masked else {}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Starts an episode in every copy."""
        self._steps = 0
        return self._show(), self._infos()

    def step(self, actions: Any) -> Any:
        """Ends all episodes at the second step: the first copy's by a limit."""
        self.actions.append(actions)
        self._steps += 1
        ends = self._steps == LENGTH
        over = self._tensor(np.array([False, ends, ends]))
        cut = self._tensor(np.array([ends, False, False]))
        infos = self._infos()
        if ends:
            numbers = {"reached": self._tensor(np.arange(ENVS)), "nested": {"x": self._tensor(np.full(ENVS, 0.5))}}
            shown = self._show()
            if self.metadata["autoreset_mode"] == "SameStep":
                infos |= {"final_obs": shown, "final_info": {**numbers, **self._infos()}}
                self._steps = 0
                shown = self._show()
            else:
                infos |= numbers
            return shown, self._tensor(np.ones(ENVS)), over, cut, infos
        return self._show(), self._tensor(np.full(ENVS, 0.25)), over, cut, infos

    def close(self) -> None:
        """Does nothing."""


def float_batch(batch: EnvBatch) -> list[Any]:
    """Plays one episode and returns the results of its steps."""
    first = batch.reset([1, 2, 3])
    assert [values.dtype for values in first] == [np.float32, np.int32]
    np.testing.assert_array_equal(first[0], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(first[1], [[0], [1], [2]])
    return [batch.step(ACTIONS, None) for _ in range(LENGTH)]


def gradient(values: Any) -> Any:
    """Returns a tensor with a gradient, which numpy refuses."""
    made = torch.as_tensor(values)
    return made.requires_grad_() if made.dtype.is_floating_point else made


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("tensor", [gradient, OnGpu], ids=["cpu", "gpu"])
def test_tensors_arrive_as_arrays(tensor: Any, mode: str) -> None:
    """Observations, rewards, ends, final observations and infos arrive as arrays, in each reset mode."""
    batch = VectorBatch(Simulator(tensor, mode), "Simulator")
    before, last = float_batch(batch)

    assert before.rewards.tolist() == [0.25] * ENVS
    assert last.rewards.tolist() == [1.0] * ENVS
    assert list(last.ended) == [0, 1, 2]
    assert last.ends.tolist() == [SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED, SegmentEnd.TERMINATED]
    np.testing.assert_array_equal(last.final_observations[0], [[2, 2], [3, 3], [4, 4]])
    assert [dict(numbers) for numbers in last.infos] == [
        {"reached": float(env), "nested.x": 0.5} for env in range(ENVS)
    ]
    assert all(type(array) is np.ndarray for array in (*last.observations, *last.final_observations, last.rewards))


def test_an_environment_of_torch_tensors_gets_tensors_as_actions() -> None:
    """Torch environments get actions as tensors on the device of their observations; others get arrays."""
    takes = {}
    for name, tensor in (("torch", torch.as_tensor), ("gpu", OnGpu), ("numpy", np.asarray)):
        simulator = Simulator(tensor, "SameStep")
        float_batch(VectorBatch(simulator, "Simulator"))
        takes[name] = simulator.actions[0]

    assert isinstance(takes["torch"], torch.Tensor)
    assert takes["torch"].dtype == torch.float32
    assert takes["torch"].device == torch.device("cpu")
    assert type(takes["gpu"]) is type(takes["numpy"]) is np.ndarray
    for actions in takes.values():
        np.testing.assert_array_equal(np.asarray(actions), ACTIONS)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("tensor", [torch.as_tensor, OnGpu], ids=["cpu", "gpu"])
def test_masks_may_be_tensors(tensor: Any, mode: str) -> None:
    """Masks may be tensors, in resets and steps."""
    batch = VectorBatch(Simulator(tensor, mode, masked=True), "Simulator")
    batch.reset([1, 2, 3])
    for _ in range(LENGTH + 1):
        assert batch.action_masks is not None
        assert batch.action_masks[:, 1].tolist() == [1] * ENVS
        result = batch.step(None, np.ones((ENVS, 1), np.int32))
    assert result.rewards.shape == (ENVS,)
