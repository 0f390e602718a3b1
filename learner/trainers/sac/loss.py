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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from learner.networks.distributions import categorical_entropy, log_tanh_slope
from learner.networks.policy import PolicyOutput

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Draw(NamedTuple):
    """What a policy does in B states.

    Attributes:
        output: the policy's.
        actions: ``[B, n]`` in [-1, 1], or None without continuous actions.
        log_prob: ``[B]`` of the whole continuous action, or None.
    """

    output: PolicyOutput
    actions: Tensor | None
    log_prob: Tensor | None


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


def draw(output: PolicyOutput, noise: Tensor | None) -> Draw:
    """Makes actions of a policy's output and standard normal noise ``[B, n]``."""
    if output.mean is None or output.log_std is None or noise is None:
        return Draw(output, None, None)
    raw = torch.addcmul(output.mean, output.log_std.exp(), noise)
    # The standardized draw is the noise itself.
    density = torch.addcmul(output.log_std + log_tanh_slope(raw), noise, noise, value=0.5).sum(1)
    return Draw(output, torch.tanh(raw), -(density + _HALF_LOG_TWO_PI * noise.shape[1]))


def soft_values(drawn: Draw, values: Tensor, alphas: Alphas, branches: Sequence[int]) -> Tensor:
    """Computes V ``[B, K]`` of what twin critics say ``[2, B, K, A]``; see the head of this file."""
    smaller = values.min(0).values
    logits = drawn.output.logits
    if logits is None or alphas.discrete is None:
        found = smaller.squeeze(2)
    else:
        gains = smaller - (alphas.discrete * logits).unsqueeze(1)
        found = torch.matmul(gains, logits.exp().unsqueeze(2)).squeeze(2) / len(branches)
    if drawn.log_prob is None or alphas.continuous is None:
        return found
    return found - (alphas.continuous * drawn.log_prob).unsqueeze(1)


def critic_targets(rewards: Tensor, terminated: Tensor, soft: Tensor, gamma: Tensor, ignores_ends: Tensor) -> Tensor:
    """Computes ``r + gamma V'`` ``[B, K]``; where nothing follows a step, only signals that ignore ends have a V'.

    Args:
        rewards: ``[B, K]``.
        terminated: ``[B]``, 1 where nothing follows. An interrupted episode is not terminated: its value counts.
        soft: ``[B, K]`` of the state after the step.
        gamma: ``[K]``.
        ignores_ends: ``[K]`` bool.
    """
    goes_on = torch.where(ignores_ends, 1.0, 1.0 - terminated.unsqueeze(1))
    return rewards + gamma * goes_on * soft


def values_of_actions(values: Tensor, choices: Tensor | None) -> Tensor:
    """Returns what critics say of the actions that were taken, ``[2, B, K]``; with several branches, the mean over them.

    Args:
        values: ``[2, B, K, A]``.
        choices: ``[B, b]`` int64, the choices that were made, each plus the offset of its branch; or None.
    """
    if choices is None:
        return values.squeeze(3)
    return values.gather(3, choices.unsqueeze(1).expand(*values.shape[:3], -1)).mean(3)


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
