"""The control of the lag gate: PPO that ignores the recorded log-probabilities."""

import torch

from learner.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.networks.distributions import branch_offsets
from learner.trainers.actor_critic.loss import log_probability
from learner.trainers.ppo.trainer import PPOTrainer


class RecomputingPPO(PPOTrainer):
    """PPO whose old log-probabilities are those of the current weights.

    Its ratio begins at 1 in each update, however old the steps are: nothing corrects for their age.
    """

    def _update_policy(self) -> int:
        self._recompute()
        return super()._update_policy()

    @torch.no_grad()
    def _recompute(self) -> None:
        """Overwrites the recorded log-probabilities."""
        plan, storage = self.update_buffer.plan(), self.update_buffer.ring.storage
        rows = {name: column.index_select(0, plan.step_rows) for name, column in storage.items()}
        output = self.policy([rows[name] for name in self._maker.observations], rows.get(ACTION_MASK))
        discrete = rows.get(DISCRETE_ACTION)
        if discrete is not None:
            discrete = discrete + branch_offsets(self.context.behavior.spec.action.discrete_branches)
        now = log_probability(output, rows.get(CONTINUOUS_ACTION), discrete, "per_action")
        storage[LOG_PROB].index_copy_(0, plan.step_rows, now)
