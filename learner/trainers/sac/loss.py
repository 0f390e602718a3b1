"""The losses of SAC: pure functions of a minibatch that autograd differentiates.

| symbol | shape | meaning |
|---|---|---|
| B, K, n, b, A | | steps, reward signals, continuous axes, discrete branches, choices of all branches side by side |
| u, a = tanh(u) | [B, n] | raw draw and continuous action |
| p | [B, A] | probabilities of the choices, each branch sums to 1 |
| Q_i(s, a) | [B, K, A] | what critic i = 1, 2 says each choice is worth beside action a; A is 1 without branches |
| alpha, alpha_j | scalar, [b] | temperatures of the continuous action and of each branch |

The *soft value* of a state is what the policy can expect there, entropy included; of a choice the smaller critic counts,
and a step with several branches is worth the mean over them (as in ML-Agents; for one branch this is the textbook's):

    V_k(s) = mean_j sum_{c in branch j} p_c (min_i Q_ik(s, a, c) - alpha_j log p_c)  -  alpha log pi(a | s)

Its three uses:

    critics        1/2 mean (Q_ik(s, a, c) - (r_k + gamma_k V'_k(s')))^2         equations 5 and 6; V' is of the targets
    policy         -mean_k V_k(s), through a = tanh(mean + std * noise)          equation 9
    temperatures   log alpha * (entropy - target entropy)                        equation 18, for the logarithm

Expectations over choices are exact. ML-Agents 1.1.0 adds the entropy of the continuous action to V' with the wrong sign
if there are branches, too; here it always counts as above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from learner.networks.distributions import categorical_entropy
from learner.networks.squashed import Draw


@dataclass(frozen=True, slots=True)
class Alphas:
    """The temperatures.

    Attributes:
        continuous: scalar, or None without continuous actions.
        discrete: ``[A]``, that of its branch for each choice, or None.
    """

    continuous: Tensor | None
    discrete: Tensor | None


class Entropies(NamedTuple):
    """Entropies in nats, or one number for each of them.

    Attributes:
        continuous: scalar, of the continuous action; None without such actions.
        discrete: ``[b]``, of each branch; None without branches.
    """

    continuous: Tensor | None
    discrete: Tensor | None


def soft_values(drawn: Draw, values: Tensor, alphas: Alphas, branches: Sequence[int]) -> Tensor:
    """Computes V ``[B, K]`` of what twin critics say ``[2, B, K, A]``; see the head of this file.

    A temperature that is None weighs no entropy: without both it is what the policy can expect of the smaller critic.
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
    """Computes half the mean squared errors of both critics together: the mean of all squares, a scalar.

    Args:
        values: ``[2, B, K]``, what critics say of the actions that were taken.
        targets: ``[B, K]``.
    """
    return functional.mse_loss(values, targets.expand_as(values))


def policy_loss(drawn: Draw, values: Tensor, alphas: Alphas, branches: Sequence[int]) -> Tensor:
    """Computes ``-mean V``, a scalar, of what twin critics say ``[2, B, K, A]`` of the actions that were drawn.

    Its gradient goes through the values to these actions; critics and temperatures must not descend it.
    """
    return -soft_values(drawn, values, alphas, branches).mean()


@torch.no_grad()
def mean_entropies(drawn: Draw, branches: Sequence[int]) -> Entropies:
    """Estimates the entropy of the continuous action by its draws, and computes those of the branches; means over B."""
    continuous = None if drawn.log_prob is None else -drawn.log_prob.mean()
    logits = drawn.output.logits
    return Entropies(continuous, None if logits is None else categorical_entropy(logits, branches).mean(0))


def temperature_loss(log_alphas: Entropies, entropies: Entropies, targets: Entropies) -> Tensor:
    """Computes ``log alpha * (entropy - target entropy)``, a scalar: too little entropy makes a temperature rise.

    Args:
        log_alphas: logarithms of the temperatures.
        entropies: of the policy, without a gradient.
        targets: entropies to keep.
    """
    terms: list[Tensor] = []
    if log_alphas.continuous is not None and entropies.continuous is not None and targets.continuous is not None:
        terms.append(log_alphas.continuous * (entropies.continuous - targets.continuous))
    if log_alphas.discrete is not None and entropies.discrete is not None and targets.discrete is not None:
        terms.append(torch.dot(log_alphas.discrete, entropies.discrete - targets.discrete))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]
