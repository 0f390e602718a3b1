"""Parts of the actor-critic losses: minibatches, coefficients, likelihoods and entropies.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | advantage, mean over signals |
| R | [B, K] | targets of the values |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.training.networks.distributions import categorical_log_prob, gaussian_entropy, gaussian_log_prob
from learner.training.networks.policy import PolicyOutput

Ratio = Literal["per_action", "joint"]


class Batch(NamedTuple):
    """The inputs of the loss for each step.

    Attributes:
        continuous: ``[B, n]`` raw draws; None without continuous actions.
        discrete: ``[B, b]`` int64, each action plus the offset of its branch (`branch_offsets`); None without branches.
        log_prob: ``[B, F]`` for ratio ``per_action``, ``[B, 1]`` for ``joint``.
        advantage: ``[B, 1]``.
        returns: ``[B, K]``, in the scale of the value heads (`learner.training.trainers.actor_critic.value_scale`).
        old_values: ``[B, K]``, values of the critic before the update, in the same scale; None unless the trainer `keeps_values`.
        old_baselines: ``[B, K]``, baselines before the update, in the same scale; None for a critic without baselines.
    """

    continuous: Tensor | None
    discrete: Tensor | None
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor
    old_values: Tensor | None = None
    old_baselines: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weights of the loss at the current point of the schedule.

    Attributes:
        epsilon: Largest distance of a ratio from 1 that the loss still rewards; 0 in a loss without a clip.
        beta: Weight of the entropy.
        value: Weight of the value loss.
        ratio: Whether each factor has its own ratio or the whole action has one.
        rho_bar: Largest weight that a ratio gives a step in a loss that truncates ratios; otherwise infinite.
    """

    epsilon: float
    beta: float
    ratio: Ratio
    value: float = 0.5
    rho_bar: float = math.inf

    def is_limited(self, ratios: Tensor) -> Tensor:
        """Returns a tensor of the same shape that is true where ratios are clipped or truncated."""
        return (ratios - 1.0).abs() > self.epsilon if self.epsilon else ratios > self.rho_bar


class LossTerms(NamedTuple):
    """The value of a loss and the scalars to report.

    Attributes:
        total: Scalar, the loss to minimize.
        scalars: Scalars to report by name (see `statistic_of`), with the same names each time. Every trainer has
            ``policy_loss``, ``value_loss`` and ``entropy``. Actor-critics report means over an update; trainers with
            replay memory report the last minibatch of a turn.
    """

    total: Tensor
    scalars: Mapping[str, Tensor]


def require_terms(terms: object, loss: object) -> None:
    """Checks that a loss, possibly from a package, returned valid terms; reads no number from the device.

    Raises:
        UserError: The result is invalid; the message names the loss and the fault.
    """
    total, scalars = terms if isinstance(terms, LossTerms) else (terms, None)
    if not isinstance(total, Tensor) or not isinstance(scalars, Mapping):
        wrong = (
            f"returned a {type(total).__name__}: it must return LossTerms with a total (a tensor) and scalars by name"
        )
    elif total.numel() != 1 or not total.requires_grad:
        has = "" if total.requires_grad else ", without a gradient"
        wrong = (
            f"has a total of shape {list(total.shape)}{has}: it must be a scalar computed from the networks' parameters"
        )
    elif not scalars:
        wrong = "reports no scalars: it must report at least one, for example policy_loss"
    else:
        odd = next((name for name, value in scalars.items() if not isinstance(value, Tensor) or value.dim()), None)
        if odd is None:
            return
        value = scalars[odd]
        found = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        wrong = f"reports {found} as {odd!r}: it must be a tensor without axes (take the mean)"
    name = getattr(loss, "__qualname__", type(loss).__name__)
    raise UserError(ExitCode.TRAINER_FAILED, f"the loss {name} {wrong}")


def statistic_of(name: str) -> str:
    """Returns the name of a loss scalar in TensorBoard, ``stats.csv`` and every other writer.

    ``value_loss`` becomes ``Losses/Value Loss``; a name with a slash, such as ``Policy/Temperature``, stays unchanged.
    """
    if name == "entropy":
        return "Policy/Entropy"
    return name if "/" in name else f"Losses/{name.replace('_', ' ').title()}"


class Loss(Protocol):
    """A loss as a pure function of a minibatch, in operations that autograd differentiates; see `learner.training.trainers.ppo.trainer`."""

    def __call__(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss.

        Args:
            output: Output of the policy network for the minibatch.
            values: Values of the critic, ``[B, K]``; with baselines ``[B, 2 * K]``, the values first.
            batch: The minibatch.
            coefficients: Weights of the loss terms.
        """


def log_probability(output: PolicyOutput, continuous: Tensor | None, discrete: Tensor | None, ratio: Ratio) -> Tensor:
    """Computes the log-probability of actions in the form of `Batch`; its shape is that of `Batch.log_prob`."""
    factors: list[Tensor] = []
    if output.mean is not None and output.log_std is not None and continuous is not None:
        factors.append(gaussian_log_prob(output.mean, output.log_std, continuous))
    if output.logits is not None and discrete is not None:
        factors.append(categorical_log_prob(output.logits, discrete))
    log_prob = factors[0] if len(factors) == 1 else torch.cat(factors, dim=1)
    return log_prob.sum(1, keepdim=True) if ratio == "joint" and log_prob.shape[1] > 1 else log_prob


def clipped_surrogate(output: PolicyOutput, batch: Batch, coefficients: Coefficients) -> Tensor:
    """Computes the clipped surrogate loss of the policy, a scalar (arXiv:1707.06347, equation 7)."""
    log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
    ratios = (log_prob - batch.log_prob).exp()
    # min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) equals min(r A, A + epsilon |A|), whose limit is a constant.
    limit = batch.advantage + coefficients.epsilon * batch.advantage.abs()
    gain = torch.minimum(ratios * batch.advantage, limit)
    return -gain.mean()


def mean_entropy(output: PolicyOutput, ratio: Ratio) -> Tensor:
    """Computes the entropy of a step as a scalar, averaged over the minibatch.

    With ``per_action`` it is the mean over the axes plus the sum over the branches, as in ML-Agents; with ``joint`` it
    is the sum over both.
    """
    parts: list[Tensor] = []
    if output.log_std is not None:
        axes = gaussian_entropy(output.log_std)
        parts.append(axes.mean() if ratio == "per_action" else axes.sum() / axes.shape[0])
    if output.logits is not None:
        # Forbidden choices have a logit of about -1e8 and count as 0 · log 0 = 0.
        parts.append((output.logits.exp() * output.logits).sum() / -output.logits.shape[0])
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def actor_critic_loss(
    policy_loss: Tensor,
    output: PolicyOutput,
    values: Tensor,
    batch: Batch,
    coefficients: Coefficients,
    **others: Tensor,
) -> LossTerms:
    """Computes policy_loss + value * (V - R)^2 - beta * entropy.

    Args:
        policy_loss: Scalar, the policy term of the algorithm.
        output: Output of the policy network for the minibatch.
        values: Values of the critic, ``[B, K]``.
        batch: The minibatch.
        coefficients: Weights of the loss terms.
        others: More scalars to report, by name.
    """
    value_loss = torch.nn.functional.mse_loss(values, batch.returns)
    entropy = mean_entropy(output, coefficients.ratio)
    total = policy_loss + coefficients.value * value_loss
    if coefficients.beta > 0:
        total = total - coefficients.beta * entropy
    return LossTerms(total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, **others})
