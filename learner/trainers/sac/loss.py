"""The losses of SAC: pure functions of a minibatch, and their derivatives at the networks' outputs.

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

Its three uses, each with its derivative:

    critics        1/2 mean (Q_ik(s, a, c) - (r_k + gamma_k V'_k(s')))^2         equations 5 and 6; V' is of the targets
    policy         -mean_k V_k(s), through a = tanh(mean + std * noise)          equation 9
    temperatures   log alpha * (entropy - target entropy)                        equation 18, for the logarithm

Expectations over choices are exact. ML-Agents 1.1.0 adds the entropy of the continuous action to V' with the wrong sign
if there are branches, too; here it always counts as above. A test compares everything with autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from learner.networks.distributions import categorical_entropy, log_tanh_slope
from learner.networks.policy import PolicyOutput
from learner.networks.squashed import HeadGradients, within_bounds

_HALF_LOG_TWO_PI = 0.9189385332046727


class Draw(NamedTuple):
    """What a policy does in B states.

    Attributes:
        output: the policy's.
        actions: ``[B, n]`` in [-1, 1], or None without continuous actions.
        log_prob: ``[B]`` of the whole continuous action, or None.
        noise: ``[B, n]``, from which the actions were made, or None.
        probabilities: ``[B, A]``, or None without discrete actions.
    """

    output: PolicyOutput
    actions: Tensor | None
    log_prob: Tensor | None
    noise: Tensor | None
    probabilities: Tensor | None


@dataclass(frozen=True, slots=True)
class Alphas:
    """The temperatures.

    Attributes:
        continuous: scalar, or None without continuous actions.
        discrete: ``[A]``, that of its branch for each choice, or None.
    """

    continuous: Tensor | None
    discrete: Tensor | None


def draw(output: PolicyOutput, noise: Tensor | None) -> Draw:
    """Makes actions of a policy's output and standard normal noise ``[B, n]``."""
    probabilities = None if output.logits is None else output.logits.exp()
    if output.mean is None or output.log_std is None or noise is None:
        return Draw(output, None, None, None, probabilities)
    raw = torch.addcmul(output.mean, output.log_std.exp(), noise)
    # The standardized draw is the noise itself.
    log_prob = noise.square().mul_(-0.5).sub_(output.log_std).sub_(log_tanh_slope(raw)).sum(1)
    log_prob -= _HALF_LOG_TWO_PI * noise.shape[1]
    return Draw(output, raw.tanh_(), log_prob, noise, probabilities)


def soft_values(drawn: Draw, values: Tensor, alphas: Alphas, branches: Sequence[int]) -> Tensor:
    """Computes V ``[B, K]`` of what twin critics say ``[2, B, K, A]``; see the head of this file."""
    smaller = torch.minimum(values[0], values[1])
    output = drawn.output
    if drawn.probabilities is None or output.logits is None or alphas.discrete is None:
        found = smaller.squeeze(2)
    else:
        gains = smaller - (alphas.discrete * output.logits).unsqueeze(1)
        found = torch.matmul(gains, drawn.probabilities.unsqueeze(2)).squeeze(2) / len(branches)
    if drawn.log_prob is None or alphas.continuous is None:
        return found
    return found - (alphas.continuous * drawn.log_prob).unsqueeze(1)


def critic_targets(rewards: Tensor, terminated: Tensor, soft: Tensor, gamma: Tensor, ignores_ends: Tensor) -> Tensor:
    """Computes ``r + gamma V'`` ``[B, K]``; where nothing follows a step, only signals that ignore ends go on.

    Args:
        rewards: ``[B, K]``.
        terminated: ``[B]``, 1 where nothing follows. An interrupted episode is not terminated: its value goes on.
        soft: ``[B, K]`` of the state after the step.
        gamma: ``[K]``.
        ignores_ends: ``[K]`` bool.
    """
    goes_on = torch.where(ignores_ends, 1.0, 1.0 - terminated.unsqueeze(1))
    return rewards + gamma * goes_on * soft


def critic_loss(values: Tensor, choices: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Differentiates the squared errors of both critics.

    Args:
        values: ``[2, B, K, A]``.
        choices: ``[B, b]`` int64, the choices that were made, each plus the offset of its branch; or None.
        targets: ``[B, K]``.

    Returns:
        The derivative ``[2, B, K, A]``, and the losses ``[2]``.
    """
    if choices is None:
        error = values.squeeze(3) - targets
        return (error / targets.numel()).unsqueeze(3), error.square().mean((1, 2)).mul_(0.5)
    chosen = choices.unsqueeze(1).expand(*values.shape[:3], -1)
    error = values.gather(3, chosen).mean(3) - targets
    slopes = (error / (targets.numel() * choices.shape[1])).unsqueeze(3).expand(chosen.shape)
    return torch.zeros_like(values).scatter_(3, chosen, slopes), error.square().mean((1, 2)).mul_(0.5)


def policy_loss_at_values(drawn: Draw, values: Tensor, branches: Sequence[int]) -> Tensor:
    """Differentiates the policy loss with respect to what twin critics say ``[2, B, K, A]``.

    From there it goes through the critics to the continuous actions; critics themselves do not descend it.
    """
    steps, signals = values.shape[1:3]
    factor = -1.0 / (steps * signals)
    if drawn.probabilities is not None:
        weights = (drawn.probabilities * (factor / len(branches))).unsqueeze(1).expand(values.shape[1:])
    else:
        weights = torch.full_like(values[0], factor)
    counts = values[0] <= values[1]
    return torch.stack((weights * counts, weights * ~counts))


def policy_loss(
    drawn: Draw, values: Tensor, to_actions: Tensor | None, alphas: Alphas, branches: Sequence[int]
) -> tuple[HeadGradients, Tensor]:
    """Differentiates the policy loss with respect to the policy's output.

    Args:
        drawn: of the policy.
        values: ``[2, B, K, A]`` of the critics for these actions.
        to_actions: ``[B, n]``, what became of `policy_loss_at_values` behind the critics; None without such actions.
        alphas: the temperatures.
        branches: number of choices of each branch.

    Returns:
        The derivatives, and the loss.
    """
    output = drawn.output
    loss = soft_values(drawn, values, alphas, branches).mean().neg_()
    to_mean = to_log_std = to_scores = None
    steps = values.shape[1]
    if drawn.actions is not None and drawn.noise is not None and output.log_std is not None:
        if to_actions is None or alphas.continuous is None:
            raise ValueError("continuous actions need their derivative and their temperature")
        actions, per_step = drawn.actions, alphas.continuous / steps
        # d tanh(u) = 1 - a^2; the log-probability falls with log(1 - a^2), whose derivative is -2 a, and with log_std.
        to_mean = to_actions * (1.0 - actions.square()) + 2.0 * per_step * actions
        to_log_std = (to_mean * output.log_std.exp() * drawn.noise - per_step) * within_bounds(output.log_std)
    if drawn.probabilities is not None and output.logits is not None and alphas.discrete is not None:
        worth = torch.minimum(values[0], values[1]).mean(1)
        costs = alphas.discrete * output.logits - worth
        scale = 1.0 / (steps * len(branches))
        to_scores = _softmax_backward(drawn.probabilities, costs, branches).mul_(scale)
    return HeadGradients(to_mean, to_log_std, to_scores), loss


def temperature_loss(
    drawn: Draw, targets: tuple[float, Tensor], branches: Sequence[int]
) -> tuple[Tensor | None, Tensor | None]:
    """Differentiates the temperature losses with respect to log alpha: entropy less target entropy.

    Args:
        drawn: of the policy.
        targets: entropies to keep: of the continuous action, and of each branch ``[b]`` or ``[B, b]``.
        branches: number of choices of each branch.

    Returns:
        Of the continuous action, a scalar; of the branches, ``[b]``. None where there is no such part.
    """
    continuous = None if drawn.log_prob is None else drawn.log_prob.mean().neg_().sub_(targets[0])
    if drawn.probabilities is None or drawn.output.logits is None:
        return continuous, None
    entropies = categorical_entropy(drawn.output.logits, drawn.probabilities, branches)
    return continuous, (entropies - targets[1]).mean(0)


def _softmax_backward(probabilities: Tensor, outer: Tensor, branches: Sequence[int]) -> Tensor:
    """Goes back from probabilities to scores: ``p (g - sum(p g))`` in each branch, ``[B, A]``."""
    weighted = probabilities * outer
    if len(branches) == 1:
        return weighted - probabilities * weighted.sum(1, keepdim=True)
    sums = [part.sum(1, keepdim=True).expand_as(part) for part in torch.split(weighted, list(branches), 1)]
    return weighted - probabilities * torch.cat(sums, 1)
