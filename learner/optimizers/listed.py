"""Adam over parameters that stay where they are: another optimizer may have them in one piece already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from learner.common.saved_values import count
from learner.optimizers.adam import require_moments
from learner.optimizers.reduce import Reduce

_BETA1, _BETA2 = 0.9, 0.999


class ListedAdam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) over the parameters of a network, changed in place.

    `learner.optimizers.adam.FlatAdam` moves parameters and gradients into vectors of its own, which only one can do.

    Args:
        network: what is trained, on its device already.
        reduce: combines gradients over several learners.
        epsilon: Adam's own.
    """

    def __init__(self, network: nn.Module, reduce: Reduce, *, epsilon: float = 1e-8) -> None:
        self._named = {name: value for name, value in network.named_parameters() if value.requires_grad}
        self.parameters = list(self._named.values())
        self._reduce = reduce
        self._epsilon = epsilon
        self._first = [torch.zeros_like(value) for value in self.parameters]
        self._second = [torch.zeros_like(value) for value in self.parameters]
        self._steps = [torch.zeros((), device=value.device) for value in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Descends a loss once; reads nothing back from the device."""
        gradients = list(torch.autograd.grad(loss, self.parameters))
        vector = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._reduce.gradients(vector)
        parts = torch.split(vector, [gradient.numel() for gradient in gradients])
        adam(
            [value.data for value in self.parameters],
            [part.view(value.shape) for part, value in zip(parts, self.parameters, strict=True)],
            self._first,
            self._second,
            [],
            self._steps,
            fused=True,
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self._epsilon,
            maximize=False,
        )
        self.steps += 1

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether the moments are finite."""
        return torch.stack([value.isfinite().all() for value in (*self._first, *self._second)]).all()

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the moments by parameter name, and the number of steps."""
        return {
            "first": {name: value.clone() for name, value in zip(self._named, self._first, strict=True)},
            "second": {name: value.clone() for name, value in zip(self._named, self._second, strict=True)},
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a saved state.

        Raises:
            KeyError, TypeError, ValueError: it is of another network, or holds numbers that cannot be.
        """
        for name, ours in (("first", self._first), ("second", self._second)):
            saved: Mapping[str, Tensor] = state[name]
            shapes = {key: tuple(value.shape) for key, value in self._named.items()}
            if shapes != {key: tuple(value.shape) for key, value in saved.items()}:
                raise ValueError(f"the saved moments are not those of the parameters {', '.join(shapes)}")
            require_moments(saved, self._named, is_square=name == "second")
            for key, moment in zip(self._named, ours, strict=True):
                moment.copy_(saved[key])
        self.steps = count(state, "steps")
        for step in self._steps:
            step.fill_(float(self.steps))
