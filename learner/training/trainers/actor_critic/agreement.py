"""Checks that actors compute the policy that the learner trains, and that this policy can act."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from learner.training.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.training.buffers.sequences import sampled_steps
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.actor_critic.experience import Recorded
from learner.training.trainers.actor_critic.loss import Ratio, log_probability

ACTING_STEPS: Final = 256
"""Number of steps on which an updated policy is tried. A diverged policy fails on any step, so a few of an update's
steps suffice."""


class Agreement(NamedTuple):
    """The largest difference between recorded and recomputed log-probabilities, on the device.

    Attributes:
        error: Scalar, largest absolute difference; 0 if no step was fresh.
        worst: Scalar int64, index of the step with that difference.
        forbidden: Scalar, mean probability of forbidden choices in a branch before masks; None without masks.
    """

    error: Tensor
    worst: Tensor
    forbidden: Tensor | None = None


@torch.no_grad()
def compare(
    policy: PolicyNetwork,
    recorded: Recorded,
    *,
    observations: tuple[str, ...],
    ratio: Ratio,
    sample: int,
) -> Agreement:
    """Compares log-probabilities of fresh steps. Call it before the parameters or the normalizer change.

    With memory, a step is fresh only if all steps of its sequence up to it are fresh, because its memory begins with
    the sequence.

    Args:
        policy: The policy that was published last.
        recorded: N steps; steps of older versions may differ and are not compared.
        observations: Names of the observation columns.
        ratio: Form of the recorded log-probabilities.
        sample: Number of steps to compare, evenly spread over all N.
    """
    chosen = sampled_steps(recorded.lag.shape[0], recorded.table, sample=sample, device=recorded.lag.device)
    columns = {name: source.at(chosen.steps) for name, source in recorded.sources.items()}
    masks = columns.get(ACTION_MASK)
    hidden = policy.body.forward([columns[name] for name in observations], chosen.sequences)
    output = policy.act(hidden, masks)
    own = log_probability(output, columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), ratio)
    errors = (own - columns[LOG_PROB]).abs().amax(1)
    is_fresh = (recorded.lag.index_select(0, chosen.steps) == 0) & (recorded.lag.index_select(0, chosen.firsts) == 0)
    error, place = torch.where(is_fresh, errors, torch.zeros_like(errors)).max(0)
    # Not `chosen.steps[place]`: that would read the place from the device.
    worst = chosen.steps.index_select(0, place.reshape(1)).squeeze(0)
    return Agreement(error, worst, None if masks is None else _forbidden(policy, hidden, masks))


def _forbidden(policy: PolicyNetwork, hidden: Tensor, masks: Tensor) -> Tensor | None:
    head = policy.categorical
    if head is None:
        return None
    mass = head.forward(hidden, None).exp() * (masks == 0)
    return mass.sum(1).mean() / len(head.branches)


@torch.no_grad()
def can_act(policy: PolicyNetwork, recorded: Recorded, *, observations: tuple[str, ...]) -> Tensor:
    """Returns a scalar bool on the device: whether a policy's outputs are finite on a sample of the update's steps.

    Parameters can be finite while the outputs are not; actors could not act with such a policy.

    Args:
        policy: The policy that would be published next.
        recorded: N steps.
        observations: Names of the observation columns.
    """
    lag = recorded.lag
    chosen = sampled_steps(lag.shape[0], recorded.table, sample=ACTING_STEPS, device=lag.device)
    sources = recorded.sources
    masks = sources[ACTION_MASK].at(chosen.steps) if ACTION_MASK in sources else None
    return policy.unroll([sources[name].at(chosen.steps) for name in observations], masks, chosen.sequences).is_finite()
