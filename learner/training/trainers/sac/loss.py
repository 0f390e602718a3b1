"""The losses of SAC: pure functions of a minibatch that autograd differentiates.

| symbol | shape | meaning |
|---|---|---|
| B, K, n, b, A | | steps, reward signals, continuous axes, discrete branches, choices of all branches side by side |
| u, a = tanh(u) | [B, n] | raw draw and continuous action |
| p | [B, A] | probabilities of the choices, each branch sums to 1 |
| Q_i(s, a) | [B, K, A] | value of each choice together with action a by critic i = 1, 2; A is 1 without branches |
| alpha, alpha_j | scalar, [b] | temperatures of the continuous action and of each branch |

The *soft value* of a state is the return that the policy can expect from it, entropy included. For each choice, the
smaller critic counts; with several branches, V is the mean over them (as in ML-Agents; with one, it is the usual form):

    V_k(s) = mean_j sum_{c in branch j} p_c (min_i Q_ik(s, a, c) - alpha_j log p_c)  -  alpha log pi(a | s)

Its three uses:

    critics        1/2 mean (Q_ik(s, a, c) - (r_k + gamma_k V'_k(s')))^2         equations 5 and 6; V' is of the targets
    policy         -mean_k V_k(s), through a = tanh(mean + std * noise)          equation 9
    temperatures   log alpha * (entropy - target entropy)                        equation 18, for the logarithm

Expectations over choices are exact. For actions that also have branches, ML-Agents 1.1.0 adds the entropy of the
continuous action to V' with the wrong sign; here it always counts as above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from learner.training.networks.distributions import categorical_entropy
from learner.training.networks.squashed import Draw


@dataclass(frozen=True, slots=True)
class Alphas:
    """The temperatures.

    Attributes:
        continuous: Scalar; None without continuous actions.
        discrete: ``[A]``, temperature of the branch of each choice; None without branches.
    """

    continuous: Tensor | None
    discrete: Tensor | None


class Entropies(NamedTuple):
    """Entropies in nats, or one number for each entropy.

    Attributes:
        continuous: Scalar, entropy of the continuous action; None without such actions.
        discrete: ``[b]``, entropy of each branch; None without branches.
    """

    continuous: Tensor | None
    discrete: Tensor | None


def soft_values(drawn: Draw, values: Tensor, alphas: Alphas, branches: Sequence[int]) -> Tensor:
    """Computes V ``[B, K]`` from values of twin critics ``[2, B, K, A]``; see the module docstring.

    A temperature of None gives entropy no weight; without both temperatures, V is the expected value of the smaller
    critic.
    """
    smaller, logits = values.min(0).values, drawn.output.logits
    if logits is None:
        found = smaller.squeeze(2)
    else:
        gains = smaller if alphas.discrete is None else smaller - (alphas.discrete * logits).unsqueeze(1)
        found = torch.matmul(gains, logits.exp().unsqueeze(2)).squeeze(2) / len(branches)
    if drawn.log_prob is None or alphas.continuous is None:
        return found
    return found - (alphas.continuous * drawn.log_prob).unsqueeze(1)


def critic_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Computes half of the summed mean squared errors of both critics: the mean of all squares, a scalar.

    Args:
        values: ``[2, B, K]``, values of the actions that were taken.
        targets: ``[B, K]``.
    """
    return functional.mse_loss(values, targets.expand_as(values))


def policy_loss(drawn: Draw, values: Tensor, alphas: Alphas, branches: Sequence[int]) -> Tensor:
    """Computes ``-mean V``, a scalar, from the values of twin critics ``[2, B, K, A]`` for the drawn actions.

    Its gradient passes through the values to these actions; critics and temperatures must not descend it.
    """
    return -soft_values(drawn, values, alphas, branches).mean()


@torch.no_grad()
def mean_entropies(drawn: Draw, branches: Sequence[int]) -> Entropies:
    """Estimates the mean entropy of the continuous action from its draws, and computes those of the branches."""
    continuous = None if drawn.log_prob is None else -drawn.log_prob.mean()
    logits = drawn.output.logits
    return Entropies(continuous, None if logits is None else categorical_entropy(logits, branches).mean(0))


def temperature_loss(log_alphas: Entropies, entropies: Entropies, targets: Entropies) -> Tensor:
    """Computes ``log alpha * (entropy - target entropy)``, a scalar: too little entropy raises the temperature.

    Args:
        log_alphas: Logarithms of the temperatures.
        entropies: Entropies of the policy, without gradient.
        targets: Entropies to keep.
    """
    terms: list[Tensor] = []
    if log_alphas.continuous is not None and entropies.continuous is not None and targets.continuous is not None:
        terms.append(log_alphas.continuous * (entropies.continuous - targets.continuous))
    if log_alphas.discrete is not None and entropies.discrete is not None and targets.discrete is not None:
        terms.append(torch.dot(log_alphas.discrete, entropies.discrete - targets.discrete))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]
