"""Target networks: copies that slowly follow the trained networks."""

from __future__ import annotations

from torch import nn

from learner.training.optimizers.adam import FlatAdam, flatten


class SoftTarget:
    """Moves a target network towards its source: target += tau * (network - target).

    Implements the soft update of Lillicrap et al. 2016 (arXiv:1509.02971, algorithm 1) for all parameters in one
    operation. The target's parameters become views of one vector; parameters that the network does not learn are equal
    in both and stay unchanged.

    Args:
        target: The copy, on its device.
        network: The network, whose parameters have the same names.
        optimizer: Optimizer of the network.
        tau: Share of the difference that each update closes.

    Attributes:
        tau: As given; may be changed between two updates.
    """

    def __init__(self, target: nn.Module, network: nn.Module, optimizer: FlatAdam, tau: float) -> None:
        copies = dict(target.named_parameters())
        self._vector = flatten([copies[name] for name, value in network.named_parameters() if value.requires_grad])
        self._followed = optimizer.parameters
        self.tau = tau

    def update(self) -> None:
        """Moves the target; call it after each step of the optimizer."""
        self._vector.lerp_(self._followed, self.tau)
