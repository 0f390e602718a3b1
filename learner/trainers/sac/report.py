"""What a turn of SAC came to, read from the device in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from learner.networks.distributions import categorical_entropy
from learner.observe.metrics.behaviors import LossNumbers
from learner.trainers.sac.learner import Report, SACLearner
from learner.trainers.sac.networks import Temperatures
from learner.trainers.sac.reading import can_act


@dataclass(frozen=True, slots=True)
class TurnNumbers:
    """Of the last minibatch of a turn.

    Attributes:
        policy_loss: the entropy bonus is part of it.
        critic_losses: of both critics.
        bonus: the part of the policy loss that is the entropy's.
        continuous_entropy: of the squashed action, in nats; None without continuous actions.
        discrete_entropy: sum over the branches; None without discrete actions.
        continuous_alpha: the temperature; None without continuous actions.
        discrete_alphas: of the branches.
        values: mean of what the critics are driven at, of each signal.
        explained: share of the variance of these that the critics explain.
        grad_norm: of policy and critics together, before clipping.
    """

    policy_loss: float
    critic_losses: tuple[float, float]
    bonus: float
    continuous_entropy: float | None
    discrete_entropy: float | None
    continuous_alpha: float | None
    discrete_alphas: tuple[float, ...]
    values: tuple[float, ...]
    explained: float
    grad_norm: float

    @property
    def entropy(self) -> float:
        """Of the whole action, in nats."""
        return (self.continuous_entropy or 0.0) + (self.discrete_entropy or 0.0)

    def numbers(self, learning_rate: float) -> LossNumbers:
        """Returns what metrics show. There are no recorded log-probabilities that could be compared."""
        return LossNumbers(
            policy=self.policy_loss - self.bonus,
            value=sum(self.critic_losses),
            entropy=self.bonus,
            grad_norm=self.grad_norm,
            approx_kl=0.0,
            clip_ratio=0.0,
            explained_variance=self.explained,
            entropy_nats=self.entropy,
            learning_rate=learning_rate,
            log_prob_error_max=0.0,
        )

    def statistics(self, signals: Sequence[str]) -> dict[str, float]:
        """Returns what TensorBoard shows, by ML-Agents' names.

        There is no value network; ``Value Loss`` is the mean of the two critics' losses.
        """
        first, second = self.critic_losses
        found = {
            "Losses/Policy Loss": self.policy_loss,
            "Losses/Q1 Loss": first,
            "Losses/Q2 Loss": second,
            "Losses/Value Loss": (first + second) / 2,
            "Policy/Entropy": self.entropy,
            "Rollcast/Explained Variance": self.explained,
        }
        for name, value in zip(signals, self.values, strict=True):
            found[f"Policy/{name.capitalize()} Value"] = value
        if self.continuous_alpha is not None:
            found["Policy/Continuous Entropy Coeff"] = self.continuous_alpha
        if self.discrete_alphas:
            found["Policy/Discrete Entropy Coeff"] = sum(self.discrete_alphas) / len(self.discrete_alphas)
        return found


@torch.no_grad()
def read_report(
    report: Report, temperatures: Temperatures, is_finite: Tensor, learner: SACLearner
) -> TurnNumbers | None:
    """Waits for the device and returns what the last update was like; None if something is not finite."""
    drawn, targets = report.drawn, report.targets
    axes, branches = drawn.log_prob is not None, len(learner.branches)
    entropies: list[Tensor] = [] if drawn.log_prob is None else [-drawn.log_prob.mean()]
    if drawn.probabilities is not None and drawn.output.logits is not None:
        entropies += categorical_entropy(drawn.output.logits, drawn.probabilities, learner.branches).mean(0).unbind()
    alphas = [] if temperatures.continuous is None else [temperatures.continuous.exp()]
    alphas += [] if temperatures.discrete is None else temperatures.discrete.exp().unbind()
    spread = targets.var(0, correction=0).mean()
    norms = torch.stack((learner.policy_optimizer.gradient_norm(), learner.critic_optimizer.gradient_norm()))
    scalars = [
        is_finite
        & can_act(learner.networks.policy, report.batch)
        & report.policy_loss.isfinite()
        & report.critic_losses.isfinite().all(),
        report.policy_loss,
        *report.critic_losses.unbind(),
        1.0 - report.critic_losses.sum() / spread,
        torch.linalg.vector_norm(norms),
        *targets.mean(0).unbind(),
        *entropies,
        *alphas,
    ]
    finite, policy, first, second, explained, norm, *rest = torch.stack([each.double() for each in scalars]).tolist()
    if not finite:
        return None
    signals, factors = targets.shape[1], int(axes) + branches
    values, found, temperature = rest[:signals], rest[signals : signals + factors], rest[signals + factors :]
    weights = [1.0] * int(axes) + [1.0 / max(1, branches)] * branches
    bonus = -sum(alpha * entropy * each for alpha, entropy, each in zip(temperature, found, weights, strict=True))
    return TurnNumbers(
        policy_loss=policy,
        critic_losses=(first, second),
        bonus=bonus,
        continuous_entropy=found[0] if axes else None,
        discrete_entropy=sum(found[int(axes) :]) if branches else None,
        continuous_alpha=temperature[0] if axes else None,
        discrete_alphas=tuple(temperature[int(axes) :]),
        values=tuple(values),
        explained=explained,
        grad_norm=norm,
    )
