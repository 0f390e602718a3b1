"""Whether actors compute the policy that the learner trains: their log-probabilities beside the learner's own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.device.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.networks.policy import PolicyNetwork
from learner.trainers.actor_critic.experience import Recorded
from learner.trainers.actor_critic.loss import Ratio, log_probability
from learner.trainers.actor_critic.steps import sampled_steps


class Agreement(NamedTuple):
    """The largest difference, on the device.

    Attributes:
        error: scalar, largest difference between recorded and own log-probability; 0 if no step was fresh.
        worst: scalar int64, the step with that difference.
    """

    error: Tensor
    worst: Tensor


@torch.no_grad()
def compare(
    policy: PolicyNetwork,
    recorded: Recorded,
    *,
    observations: tuple[str, ...],
    ratio: Ratio,
    sample: int,
) -> Agreement:
    """Compares log-probabilities of fresh steps; to be called before parameters or normalizer change.

    With a memory, a step is fresh if its whole sequence was, up to it: what it remembers began there.

    Args:
        policy: as it was published last.
        recorded: N steps; those of older versions differ by right and are not compared.
        observations: names of the observation columns.
        ratio: of the recorded log-probabilities.
        sample: how many steps to look at, evenly spread over all N.
    """
    chosen = sampled_steps(recorded.lag.shape[0], recorded.table, sample=sample, device=recorded.lag.device)
    columns = {name: source.at(chosen.steps) for name, source in recorded.sources.items()}
    output = policy.unroll([columns[name] for name in observations], columns.get(ACTION_MASK), chosen.sequences)
    own = log_probability(output, columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), ratio)
    errors = (own - columns[LOG_PROB]).abs().amax(1)
    is_fresh = (recorded.lag.index_select(0, chosen.steps) == 0) & (recorded.lag.index_select(0, chosen.firsts) == 0)
    error, place = torch.where(is_fresh, errors, torch.zeros_like(errors)).max(0)
    return Agreement(error, chosen.steps[place])
