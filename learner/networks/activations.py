"""The activations a run file can name."""

from __future__ import annotations

from typing import Literal

from torch import nn

Activation = Literal["swish", "tanh", "relu"]


def activation(name: Activation) -> nn.Module:
    """Makes the activation of that name; swish is x * sigmoid(x) (Ramachandran et al. 2017, arXiv:1710.05941)."""
    modules: dict[str, type[nn.Module]] = {"swish": nn.SiLU, "tanh": nn.Tanh, "relu": nn.ReLU}
    return modules[name]()
