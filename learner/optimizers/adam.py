"""One Adam over all parameters of a network, and the way back if an update went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from learner.common.saved_tensors import require_numbers
from learner.common.saved_values import count
from learner.optimizers.reduce import Reduce

_BETA1, _BETA2 = 0.9, 0.999


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an optimizer goes back to: ``[P]`` each, but for the number of steps."""

    parameters: Tensor
    first: Tensor
    second: Tensor
    steps: int


class FlatAdam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) over all P parameters of a network, as one vector.

    The parameters of the network become views of that vector, and their ``grad`` views of another, into which
    ``backward`` adds: clipping and the step itself are single operations, however many layers there are.

    Args:
        network: what is trained, on its device already.
        learning_rate: the size of a step.
        reduce: combines gradients over several learners.
        epsilon: Adam's own.
        max_grad_norm: longer gradients are cut to this norm; None cuts none.
    """

    def __init__(
        self,
        network: nn.Module,
        learning_rate: float,
        reduce: Reduce,
        *,
        epsilon: float = 1e-8,
        max_grad_norm: float | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self._epsilon = epsilon
        self._max_grad_norm = max_grad_norm
        self._reduce = reduce
        self._named = {name: value for name, value in network.named_parameters() if value.requires_grad}
        self._parameters = list(self._named.values())
        self._vector = flatten(self._parameters)
        self._gradient = torch.zeros_like(self._vector)
        parts = torch.split(self._gradient, [parameter.numel() for parameter in self._parameters])
        self._slopes = [part.view(value.shape) for part, value in zip(parts, self._parameters, strict=True)]
        self.zero_grad()
        self._first = torch.zeros_like(self._vector)
        self._second = torch.zeros_like(self._vector)
        self._step = torch.zeros((), device=self._vector.device)
        self._norm: Tensor | None = None
        self.steps = 0

    @property
    def parameters(self) -> Tensor:
        """All parameters as one vector ``[P]``; the network's are views of it."""
        return self._vector

    def zero_grad(self) -> None:
        """Sets the gradient of every parameter to zero; `torch.Tensor.backward` adds to it.

        A loss that takes gradients itself may have left others in their places (`torch.nn.Module.zero_grad` does).
        """
        self._gradient.zero_()
        for parameter, slopes in zip(self._parameters, self._slopes, strict=True):
            if parameter.grad is not slopes:
                parameter.grad = slopes

    @torch.no_grad()
    def step(self, weight: float = 1.0) -> None:
        """Descends once along the gradient.

        Args:
            weight: what the gradient is divided by first, for one that is a sum over parts of a minibatch.
        """
        if weight != 1.0:
            self._gradient.mul_(1.0 / weight)
        self._reduce.gradients(self._gradient)
        if self._max_grad_norm is not None:
            self._norm = torch.linalg.vector_norm(self._gradient)
            self._gradient.mul_((self._max_grad_norm / (self._norm + 1e-6)).clamp_(max=1.0))
        moments = [self._first], [self._second]
        _descend([self._vector], [self._gradient], moments, [self._step], self.learning_rate, self._epsilon)
        self.steps += 1

    def gradient_norm(self) -> Tensor:
        """Returns a scalar on the device: the L2 norm of the last gradient, before it was clipped."""
        return torch.linalg.vector_norm(self._gradient) if self._norm is None else self._norm

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether parameters and moments are finite.

        A second moment that overflowed never comes back, and its parameter would stand still without a word.
        """
        return self._vector.isfinite().all() & self._first.isfinite().all() & self._second.isfinite().all()

    def snapshot(self) -> Snapshot:
        """Copies parameters and moments."""
        return Snapshot(self._vector.clone(), self._first.clone(), self._second.clone(), self.steps)

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to a snapshot."""
        self._vector.copy_(snapshot.parameters)
        self._first.copy_(snapshot.first)
        self._second.copy_(snapshot.second)
        self.steps = snapshot.steps
        self._step.fill_(float(snapshot.steps))

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments by parameter name, and the number of steps."""
        return {"first": self._split(self._first), "second": self._split(self._second), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a saved state.

        Raises:
            KeyError, TypeError, ValueError: it is of another network, or holds numbers that cannot be.
        """
        for name, vector in (("first", self._first), ("second", self._second)):
            saved: Mapping[str, Tensor] = state[name]
            ours = {key: tuple(value.shape) for key, value in self._named.items()}
            theirs = {key: tuple(value.shape) for key, value in saved.items()}
            if ours != theirs:
                raise ValueError(f"the optimizer's parameters are {ours}, those of the saved state {theirs}")
            require_moments(saved, self._named, is_square=name == "second")
            vector.copy_(torch.cat([saved[key].reshape(-1).to(vector.device) for key in self._named]))
        self.steps = count(state, "steps")
        self._step.fill_(float(self.steps))

    def _split(self, vector: Tensor) -> dict[str, Tensor]:
        parts = torch.split(vector, [parameter.numel() for parameter in self._parameters])
        return {
            name: part.reshape(parameter.shape).clone()
            for (name, parameter), part in zip(self._named.items(), parts, strict=True)
        }


def _descend(  # noqa: PLR0917 - what Adam needs
    parameters: list[Tensor],
    gradients: list[Tensor],
    moments: tuple[list[Tensor], list[Tensor]],
    steps: list[Tensor],
    learning_rate: float,
    epsilon: float,
) -> None:
    """Takes one step of Adam, in place."""
    adam(
        parameters,
        gradients,
        *moments,
        [],
        steps,
        fused=True,
        amsgrad=False,
        beta1=_BETA1,
        beta2=_BETA2,
        lr=learning_rate,
        weight_decay=0.0,
        eps=epsilon,
        maximize=False,
    )


def require_moments(saved: Mapping[str, Tensor], named: Mapping[str, Tensor], *, is_square: bool) -> None:
    """Looks whether saved moments are finite numbers of the type of their parameters; means of squares are not negative.

    Raises:
        ValueError: they are not.
    """
    for key, parameter in named.items():
        require_numbers(f"the optimizer's moment of {key}", saved[key], parameter.dtype)
        if is_square and bool((saved[key] < 0).any()):
            raise ValueError(f"the optimizer's second moment of {key} is negative")


@torch.no_grad()
def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Moves parameters into one vector ``[P]`` and leaves views in their places."""
    vector = torch.cat([parameter.reshape(-1) for parameter in parameters])
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, values in zip(parameters, parts, strict=True):
        parameter.data = values.view(parameter.shape)
    return vector


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
        values = [value.data for value in self.parameters]
        gradients = [part.view(value.shape) for part, value in zip(parts, values, strict=True)]
        _descend(values, gradients, (self._first, self._second), self._steps, learning_rate, self._epsilon)
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
