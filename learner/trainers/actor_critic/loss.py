"""What the losses of actor-critic trainers are made of: minibatches, coefficients, likelihoods and entropies.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | advantage, mean over signals |
| R | [B, K] | what the values shall become |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from learner.common.exits import ExitCode, UserError
from learner.networks.distributions import categorical_log_prob, gaussian_entropy, gaussian_log_prob
from learner.networks.policy import PolicyOutput

Ratio = Literal["per_action", "joint"]


class Batch(NamedTuple):
    """What the loss needs of each step.

    Attributes:
        continuous: ``[B, n]`` raw draws, or None.
        discrete: ``[B, b]`` int64, each action plus the offset of its branch (`branch_offsets`), or None.
        log_prob: ``[B, F]`` for ratio ``per_action``, ``[B, 1]`` for ``joint``.
        advantage: ``[B, 1]``.
        returns: ``[B, K]``.
        old_values: ``[B, K]``, what the critic said before the update; None unless the trainer `keeps_values`.
    """

    continuous: Tensor | None
    discrete: Tensor | None
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor
    old_values: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weights of the loss, at their present place in the schedule.

    Attributes:
        epsilon: how far a ratio may move from 1 and still gain; 0 in a loss without a clip.
        beta: weight of the entropy.
        value: weight of the value loss.
        ratio: whether each factor has its own ratio, or the whole action one.
        rho_bar: the largest weight that a ratio may give a step, in a loss that truncates ratios; else infinite.
    """

    epsilon: float
    beta: float
    ratio: Ratio
    value: float = 0.5
    rho_bar: float = math.inf

    def is_limited(self, ratios: Tensor) -> Tensor:
        """Returns where ratios are clipped or truncated, of their shape."""
        return (ratios - 1.0).abs() > self.epsilon if self.epsilon else ratios > self.rho_bar


class LossTerms(NamedTuple):
    """What a loss is, and what it is made of.

    Attributes:
        total: scalar, what is descended.
        scalars: what is reported, by name (see `statistic_of`), the same names each time; ``policy_loss``, ``value_loss``
            and ``entropy`` are those that every trainer has. Actor-critics report the means over an update, trainers with a
            replay memory the last minibatch of a turn.
    """

    total: Tensor
    scalars: Mapping[str, Tensor]


def require_terms(terms: object, loss: object) -> None:
    """Looks whether a loss, which a package may have written, returned what it must; reads no number from the device.

    Raises:
        UserError: it did not: the loss and what is wrong with its result are named.
    """
    total, scalars = terms if isinstance(terms, LossTerms) else (terms, None)
    if not isinstance(total, Tensor) or not isinstance(scalars, Mapping):
        wrong = f"returned a {type(total).__name__}: it must be LossTerms of a total, a tensor, and scalars by name"
    elif total.numel() != 1 or not total.requires_grad:
        has = "" if total.requires_grad else ", without a gradient"
        wrong = (
            f"has a total of shape {list(total.shape)}{has}: it must be a scalar that the networks' parameters lead to"
        )
    elif not scalars:
        wrong = "reports no scalars: policy_loss, for example"
    else:
        odd = next((name for name, value in scalars.items() if not isinstance(value, Tensor) or value.dim()), None)
        if odd is None:
            return
        value = scalars[odd]
        found = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        wrong = f"reports {found} as {odd!r}: it must be a tensor of no axes (take the mean)"
    name = getattr(loss, "__qualname__", type(loss).__name__)
    raise UserError(ExitCode.TRAINER_FAILED, f"the loss {name} {wrong}")


def statistic_of(name: str) -> str:
    """Returns the name that a scalar of a loss has in TensorBoard, ``stats.csv`` and every other writer.

    ``value_loss`` becomes ``Losses/Value Loss``; a name with a slash, such as ``Policy/Temperature``, stays as it is.
    """
    if name == "entropy":
        return "Policy/Entropy"
    return name if "/" in name else f"Losses/{name.replace('_', ' ').title()}"


class Loss(Protocol):
    """A loss as a pure function of a minibatch, in operations that autograd differentiates; see `learner.trainers.ppo.loss`."""

    def __call__(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss.

        Args:
            output: of the policy network for the steps of the minibatch.
            values: ``[B, K]`` of the critic.
            batch: the minibatch.
            coefficients: weights.
        """


def log_probability(output: PolicyOutput, continuous: Tensor | None, discrete: Tensor | None, ratio: Ratio) -> Tensor:
    """Computes the log-probability of actions as in `Batch`, of the shape of `Batch.log_prob`."""
    factors: list[Tensor] = []
    if output.mean is not None and output.log_std is not None and continuous is not None:
        factors.append(gaussian_log_prob(output.mean, output.log_std, continuous))
    if output.logits is not None and discrete is not None:
        factors.append(categorical_log_prob(output.logits, discrete))
    log_prob = factors[0] if len(factors) == 1 else torch.cat(factors, dim=1)
    return log_prob.sum(1, keepdim=True) if ratio == "joint" and log_prob.shape[1] > 1 else log_prob


def mean_entropy(output: PolicyOutput, ratio: Ratio) -> Tensor:
    """Computes the entropy of a step as a scalar, the mean over the minibatch.

    With ``per_action`` it is the mean over the axes plus the sum over the branches, as in ML-Agents; with ``joint`` the sum
    over both.
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
    """Adds what all actor-critics have to an algorithm's own term: policy_loss + value * (V - R)^2 - beta * entropy.

    Args:
        policy_loss: scalar, the algorithm's own term.
        output: of the policy network for the steps of the minibatch.
        values: ``[B, K]`` of the critic.
        batch: the minibatch.
        coefficients: weights.
        others: more scalars to report, by name.
    """
    value_loss = torch.nn.functional.mse_loss(values, batch.returns)
    entropy = mean_entropy(output, coefficients.ratio)
    total = policy_loss + coefficients.value * value_loss
    if coefficients.beta > 0:
        total = total - coefficients.beta * entropy
    return LossTerms(total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, **others})
