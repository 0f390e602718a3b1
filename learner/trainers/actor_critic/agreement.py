"""Whether actors compute the policy that the learner trains, and whether it is one that can act."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from learner.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.buffers.sequences import sampled_steps
from learner.networks.policy import PolicyNetwork
from learner.trainers.actor_critic.experience import Recorded
from learner.trainers.actor_critic.loss import Ratio, log_probability

ACTING_STEPS: Final = 256
"""On so many steps an updated policy is tried: a policy that has diverged shows it on any, and an update looks at many more."""


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
    # Not `chosen.steps[place]`: that reads the place from the device.
    return Agreement(error, chosen.steps.index_select(0, place.reshape(1)).squeeze(0))


@torch.no_grad()
def can_act(policy: PolicyNetwork, recorded: Recorded, *, observations: tuple[str, ...]) -> Tensor:
    """Returns a scalar bool on the device: whether a policy's outputs are finite on some of the steps of its update.

    All parameters may be numbers, and what they make of observations none: actors would have nothing to do.

    Args:
        policy: as it would be published next.
        recorded: N steps.
        observations: names of the observation columns.
    """
    lag = recorded.lag
    chosen = sampled_steps(lag.shape[0], recorded.table, sample=ACTING_STEPS, device=lag.device)
    sources = recorded.sources
    masks = sources[ACTION_MASK].at(chosen.steps) if ACTION_MASK in sources else None
    return policy.unroll([sources[name].at(chosen.steps) for name in observations], masks, chosen.sequences).is_finite()
