"""Describes a policy network for the protocol: its inputs and outputs, and how actions are drawn from them."""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.descriptions import ACTION_MASKS, RECURRENT_IN, RECURRENT_OUT
from rollcast.enums import Distribution, Squash
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.transforms import ActionTransform

from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import squash_of


@dataclass(frozen=True, slots=True)
class Progress:
    """Training progress for the header of a published policy.

    Attributes:
        version: Completed updates.
        optimizer_steps: Gradient steps.
        env_steps_trained: Environment steps in completed updates.
        uniform: Whether actors act uniformly instead of by the policy.
    """

    version: int
    optimizer_steps: int
    env_steps_trained: int
    uniform: bool = False


def input_names(network: PolicyNetwork) -> tuple[str, ...]:
    """Returns the graph inputs: obs_i of each observation i that the network reads, then masks and memory if it has them."""
    names = [f"obs_{index}" for index in network.reads]
    if network.spec.action.discrete_branches:
        names.append(ACTION_MASKS)
    if network.memory_size:
        names.append(RECURRENT_IN)
    return tuple(names)


def output_names(spec: BehaviorSpec, memory_size: int) -> tuple[str, ...]:
    """Returns the graph outputs that exist: mean, log_std, logits, recurrent_out."""
    names = ["mean", "log_std"] if spec.action.continuous_size else []
    if spec.action.discrete_branches:
        names.append("logits")
    if memory_size:
        names.append(RECURRENT_OUT)
    return tuple(names)


def describe(
    network: PolicyNetwork,
    *,
    behavior_index: int,
    generation: int,
    deterministic: bool = False,
    memory_stride: int = 0,
) -> PolicyDescription:
    """Describes a network before its first version; the exporter adds the hash, and each version its numbers.

    Args:
        network: The acting network.
        behavior_index: Number of the behavior in this run.
        generation: Generation of this start of the learner.
        deterministic: Whether actors take the mode of the distribution.
        memory_stride: Rows between two records of memory; only with memory.
    """
    spec = network.spec
    action = spec.action
    squash = squash_of(network)
    gaussian = Distribution.TANH_GAUSSIAN if squash is Squash.TANH else Distribution.GAUSSIAN_CLIP3
    transform = ActionTransform(squash, action.continuous_low, action.continuous_high)
    return PolicyDescription(
        behavior_index=behavior_index,
        behavior=spec.name,
        generation=generation,
        version=0,
        architecture_hash=b"",
        inputs=input_names(network),
        outputs=output_names(spec, network.memory_size),
        continuous_distribution=gaussian if action.continuous_size else Distribution.UNSPECIFIED,
        discrete_distribution=Distribution.CATEGORICAL if action.discrete_branches else Distribution.UNSPECIFIED,
        action_transform=transform if action.continuous_size else ActionTransform(),
        memory_size=network.memory_size,
        memory_stride=memory_stride if network.memory_size else 0,
        deterministic=deterministic,
    )
