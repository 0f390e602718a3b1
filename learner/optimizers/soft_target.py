"""Target networks: copies that follow what is trained slowly."""

from __future__ import annotations

from torch import nn

from learner.optimizers.adam import FlatAdam, flatten


class SoftTarget:
    """Moves a target network after the network that it is a copy of: target += tau * (network - target).

    The soft update of Lillicrap et al. 2016 (arXiv:1509.02971, algorithm 1), of all parameters in one operation. The target's
    parameters become views of one vector; those that the network does not learn are equal in both and stay.

    Args:
        target: the copy, on its device.
        network: the network, whose parameters have the same names.
        optimizer: of the network.
        tau: share of the way that each update goes.
    """

    def __init__(self, target: nn.Module, network: nn.Module, optimizer: FlatAdam, tau: float) -> None:
        copies = dict(target.named_parameters())
        self._vector = flatten([copies[name] for name, value in network.named_parameters() if value.requires_grad])
        self._followed = optimizer.parameters
        self._tau = tau

    def update(self) -> None:
        """Goes a share of the way; after each step of the optimizer."""
        self._vector.lerp_(self._followed, self._tau)
