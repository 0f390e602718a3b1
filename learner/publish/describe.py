"""What a policy network is, in the words of the protocol: its inputs and outputs, and how actions are drawn from them."""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.enums import Distribution, Squash
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.transforms import ActionTransform

from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import squash_of


@dataclass(frozen=True, slots=True)
class Progress:
    """What the header of a published policy says of its training.

    Attributes:
        version: completed updates.
        optimizer_steps: gradient steps.
        env_steps_trained: environment steps in completed updates.
    """

    version: int
    optimizer_steps: int
    env_steps_trained: int


def input_names(spec: BehaviorSpec, memory_size: int) -> tuple[str, ...]:
    """Returns the graph inputs: obs_0.., action_masks with discrete actions, recurrent_in with memory."""
    names = [f"obs_{index}" for index in range(len(spec.observations))]
    if spec.action.discrete_branches:
        names.append("action_masks")
    if memory_size:
        names.append("recurrent_in")
    return tuple(names)


def output_names(spec: BehaviorSpec, memory_size: int) -> tuple[str, ...]:
    """Returns the graph outputs: mean, log_std, logits, recurrent_out, as far as there are."""
    names = ["mean", "log_std"] if spec.action.continuous_size else []
    if spec.action.discrete_branches:
        names.append("logits")
    if memory_size:
        names.append("recurrent_out")
    return tuple(names)


def describe(
    network: PolicyNetwork,
    *,
    behavior_index: int,
    generation: int,
    deterministic: bool = False,
    squash: Squash | None = None,
    memory_stride: int = 0,
) -> PolicyDescription:
    """Describes a network before its first version; the exporter fills in the hash, and each version its numbers.

    Args:
        network: what acts.
        behavior_index: the behavior's number in this run.
        generation: the learner's start.
        deterministic: actors take the mode of the distribution.
        squash: what is done to a continuous draw first: CLIP3_DIV3 or NONE for a Gaussian, TANH for a squashed one; None
            goes by the network.
        memory_stride: rows between two records of memory; only with memory.
    """
    spec = network.spec
    action = spec.action
    squash = squash_of(network) if squash is None else squash
    gaussian = Distribution.TANH_GAUSSIAN if squash is Squash.TANH else Distribution.GAUSSIAN_CLIP3
    transform = ActionTransform(squash, action.continuous_low, action.continuous_high)
    return PolicyDescription(
        behavior_index=behavior_index,
        behavior=spec.name,
        generation=generation,
        version=0,
        architecture_hash=b"",
        inputs=input_names(spec, network.memory_size),
        outputs=output_names(spec, network.memory_size),
        continuous_distribution=gaussian if action.continuous_size else Distribution.UNSPECIFIED,
        discrete_distribution=Distribution.CATEGORICAL if action.discrete_branches else Distribution.UNSPECIFIED,
        action_transform=transform if action.continuous_size else ActionTransform(),
        memory_size=network.memory_size,
        memory_stride=memory_stride if network.memory_size else 0,
        deterministic=deterministic,
    )
