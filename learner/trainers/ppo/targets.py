"""What PPO drives at: generalized advantages, and returns that go with them."""

from __future__ import annotations

from dataclasses import dataclass

from learner.buffers.buffer import Plan
from learner.trainers.actor_critic.experience import Targets, Valued
from learner.trainers.returns import generalized_advantages


@dataclass(frozen=True, slots=True)
class GeneralizedAdvantages:
    """Generalized advantage estimation; returns are advantages plus values.

    Attributes:
        lambd: the trace.
    """

    lambd: float

    def __call__(self, plan: Plan, valued: Valued) -> Targets:
        """Computes targets."""
        advantages = generalized_advantages(
            valued.rewards,
            valued.values,
            is_step=plan.is_step,
            bootstraps=valued.bootstraps,
            continues=plan.continues,
            gamma=valued.gamma,
            lambd=self.lambd,
            longest=plan.longest,
        )
        return Targets(advantages, advantages + valued.values)
