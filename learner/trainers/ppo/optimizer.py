"""One Adam over actor and critic, and the way back if an update went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from learner.settings.hyperparameters import PPOHyperparameters
from learner.trainers.reduce import Reduce


class PPOOptimizer:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) over all parameters of a network, in one fused call.

    Args:
        network: actor and critic.
        hyperparameters: learning rate, epsilon and the largest gradient norm.
        reduce: combines gradients over several learners.
    """

    def __init__(self, network: nn.Module, hyperparameters: PPOHyperparameters, reduce: Reduce) -> None:
        self.steps = 0
        self._parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._adam = torch.optim.Adam(
            self._parameters, lr=hyperparameters.learning_rate, eps=hyperparameters.adam_epsilon, fused=True
        )
        self._max_grad_norm = hyperparameters.max_grad_norm
        self._reduce = reduce

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the step size from now on."""
        for group in self._adam.param_groups:
            group["lr"] = learning_rate

    def step(self, loss: Tensor) -> None:
        """Descends the gradient of a scalar loss once."""
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._reduce.gradients(parameter.grad for parameter in self._parameters if parameter.grad is not None)
        if self._max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm, foreach=True)
        self._adam.step()
        self.steps += 1

    @torch.no_grad()
    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all parameters are finite."""
        return torch.stack([parameter.isfinite().all() for parameter in self._parameters]).all()

    @torch.no_grad()
    def snapshot(self) -> dict[str, list[Tensor]]:
        """Copies parameters and moments, for `restore`."""
        copies = {"parameters": [parameter.clone() for parameter in self._parameters]}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            copies[key] = [state[key].clone() for state in self._states()]
        return copies

    @torch.no_grad()
    def restore(self, snapshot: Mapping[str, list[Tensor]], steps: int) -> None:
        """Goes back to a snapshot, taken when ``steps`` had been made."""
        for parameter, copy in zip(self._parameters, snapshot["parameters"], strict=True):
            parameter.copy_(copy)
        self._adam.state.clear()
        if snapshot["step"]:
            for parameter, *values in zip(
                self._parameters, snapshot["step"], snapshot["exp_avg"], snapshot["exp_avg_sq"], strict=True
            ):
                self._adam.state[parameter] = dict(zip(("step", "exp_avg", "exp_avg_sq"), values, strict=True))
        self.steps = steps

    def state_dict(self) -> dict[str, Any]:
        """Returns Adam's state."""
        return self._adam.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a saved state of Adam.

        Raises:
            ValueError: it is of another network.
        """
        self._adam.load_state_dict(dict(state))

    def _states(self) -> list[dict[str, Tensor]]:
        return [self._adam.state[parameter] for parameter in self._parameters if parameter in self._adam.state]
