"""Targets for experience whose policy is not the present one."""

from __future__ import annotations

from dataclasses import dataclass

from learner.buffers.buffer import Plan
from learner.trainers.actor_critic.experience import Targets, Valued
from learner.trainers.returns import vtrace


@dataclass(frozen=True, slots=True)
class VTraceTargets:
    """V-trace under the policy as it is before the update; advantages r + gamma * v_{s+1} - V(x_s), without rho.

    What becomes of the ratio in the policy's gradient is the loss's: there it follows the policy through the epochs.

    Attributes:
        lambd: the trace.
        rho_bar: where ratios are truncated in temporal differences.
        c_bar: where they are truncated in traces.
    """

    lambd: float
    rho_bar: float
    c_bar: float

    def __call__(self, plan: Plan, valued: Valued) -> Targets:
        """Computes targets."""
        found = vtrace(
            valued.rewards,
            valued.values,
            valued.log_ratio(),
            is_step=plan.is_step,
            bootstraps=valued.bootstraps,
            continues=plan.continues,
            gamma=valued.gamma,
            lambd=self.lambd,
            rho_bar=self.rho_bar,
            c_bar=self.c_bar,
            longest=plan.longest,
        )
        return Targets(found.advantages, found.values)
