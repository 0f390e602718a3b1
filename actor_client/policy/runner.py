"""Stop 13 of a step's path: turns observations into actions and log-probabilities with a received policy."""

import copy
import hashlib
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from rollcast import limits
from rollcast.descriptions import ACTION_MASKS, RECURRENT_IN, RECURRENT_OUT
from rollcast.enums import Distribution, PolicyFormat
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import (
    Actions,
    FloatArray,
    IntArray,
    MaskArray,
    MemoryForm,
    PolicyUnusable,
    are_numbers,
    culprit,
    unusable,
    without_numbers,
)
from actor_client.policy.distributions import (
    Categorical,
    PreparedTransform,
    draw_gaussian,
    draw_uniform,
    gaussian_log_prob,
    log_sum_exp,
    tanh_gaussian_log_prob,
)
from actor_client.policy.graph import BadGraph, Graph, Port
from actor_client.policy.noise import Noise

_NORMALIZED_TOLERANCE: Final = 1e-4
"""Largest deviation of a branch's log total probability from 0 that still counts as normalized."""


class Policy:
    """One version of one behavior's policy, ready to act. `Policy.load` makes it.

    One thread at a time uses an object: the connection's thread loads it and hands it to the stepping thread.

    Attributes:
        description: The learner's description of it.
        generation: Number of the learner's start that made it.
        version: Grows by one with each completed update of one generation.
        memory: Form of an agent's memory.
    """

    def __init__(self, description: PolicyDescription, spec: BehaviorSpec, graph: Graph) -> None:
        self.description = description
        self.generation = description.generation
        self.version = description.version
        self.memory = MemoryForm(description.memory_size, description.memory_stride)
        self._remembers = self.memory.size > 0
        self._graph = graph
        self._inputs = [(port.name, position) for position, port in _observation_ports(description, spec)]
        self._action = spec.action
        self._takes_masks = ACTION_MASKS in description.inputs
        self._transform = PreparedTransform(description.action_transform)
        self._log_prob = (
            tanh_gaussian_log_prob
            if description.continuous_distribution is Distribution.TANH_GAUSSIAN
            else gaussian_log_prob
        )
        self._deterministic = description.deterministic
        self._uniform = description.uniform
        self._greedy: Policy | None = None
        self._random: Policy | None = None
        self._all_allowed = False
        normalized = self._probe()
        branches = spec.action.discrete_branches
        # Masks that the graph does not take are applied after it; the logits are then not normalized.
        self._categorical = Categorical(branches, normalized=normalized)
        self._masked = Categorical(branches, normalized=normalized and self._takes_masks)
        self._unweighted = Categorical(branches, normalized=False)

    @classmethod
    def load(cls, description: PolicyDescription, payload: bytes, spec: BehaviorSpec) -> Self:
        """Opens a received policy and runs it once.

        Args:
            description: The policy's header.
            payload: The unpacked file.
            spec: Observations and actions of the behavior.

        Raises:
            PolicyUnusable: The bytes do not match the description, the format or the distribution is unknown, the graph
                does not fit the spec, or its outputs are not finite.
        """
        name = f"policy {description.behavior} version {description.version} of generation {description.generation}"
        fault = _payload_fault(description, payload) or _description_fault(description, spec)
        if fault is not None:
            raise PolicyUnusable(f"{name}: {fault}")
        try:
            return cls(description, spec, Graph(payload, _inputs(description, spec), _outputs(description, spec)))
        except BadGraph as error:
            raise PolicyUnusable(f"{name}: {error}") from error

    def greedy(self) -> "Policy":
        """Returns this policy acting with the mode of its distribution; always the same object."""
        if self._deterministic and not self._uniform:
            return self
        if self._greedy is None:
            self._greedy = self._variant(deterministic=True, uniform=False)
        return self._greedy

    def uniform(self) -> "Policy":
        """Returns this policy drawing its actions uniformly; always the same object."""
        if self._uniform:
            return self
        if self._random is None:
            self._random = self._variant(deterministic=False, uniform=True)
        return self._random

    def _variant(self, *, deterministic: bool, uniform: bool) -> "Policy":
        """Returns a copy that acts otherwise and shares the graph: one thread uses both."""
        found = copy.copy(self)
        vars(found).update(_deterministic=deterministic, _uniform=uniform)
        return found

    def act(
        self,
        observations: Sequence[NDArray[Any]],
        masks: MaskArray | None,
        noise: Noise,
        memory: FloatArray | None = None,
    ) -> Actions:
        """Returns actions for B agents; all arrays are new.

        Args:
            observations: One array per observation of the spec, [B, *shape] each, in its order and dtype; those that the
                graph does not take are ignored.
            masks: uint8 [B, sum of branches], 1 = allowed; None = all allowed.
            noise: Random numbers for this action space; resized for another number of agents.
            memory: Memory before the step, float32 [B, m]; None = zeros. Ignored by a policy without memory.

        Agents whose observations are unusable get draws of 0 and no memory. The learner refuses their rows and names
        the environment.

        Raises:
            PolicyUnusable: The graph failed, or its outputs for usable observations are not finite.
        """
        graph = self._graph
        agents = observations[0].shape[0]
        if graph.resize(agents):
            self._all_allowed = False
        if noise.agents != agents:
            noise.resize(agents)
        inputs = graph.inputs
        for name, position in self._inputs:
            inputs[name][...] = observations[position]
        if self._takes_masks and (masks is not None or not self._all_allowed):
            inputs[ACTION_MASKS][...] = 1 if masks is None else masks
            self._all_allowed = masks is None
        if self._remembers:
            graph.inputs[RECURRENT_IN][...] = 0.0 if memory is None else memory
        try:
            graph.run()
        except BadGraph as error:
            raise PolicyUnusable(f"policy {self.description.behavior} version {self.version}: {error}") from error
        actions = self._actions(masks, noise)
        if self._remembers:
            actions = self._with_memory(actions, memory)
        return actions if are_numbers(actions) else self._mended(actions, observations, masks)

    def _with_memory(self, actions: Actions, memory: FloatArray | None) -> Actions:
        """Returns the actions with the memory before and after the step."""
        graph = self._graph
        after: FloatArray = graph.outputs[RECURRENT_OUT].copy()
        before = graph.inputs[RECURRENT_IN].copy() if memory is None else memory
        return actions._replace(memory_in=before, memory_out=after)

    def _mended(self, actions: Actions, observations: Sequence[NDArray[Any]], masks: MaskArray | None) -> Actions:
        """Replaces NaN and infinity in the actions of agents whose observations are unusable."""
        rows = without_numbers(actions)
        own = rows & ~unusable(observations, masks, self._action.discrete_branches)
        if own.any():
            raise PolicyUnusable(
                f"policy {self.description.behavior} version {self.version} has diverged: "
                f"{culprit(self._graph.outputs, own)} although the observations are; lower learning_rate in the "
                "run file"
            )
        for values in (actions.continuous, actions.log_prob, actions.memory_out):
            if values is not None:
                values[rows] = 0.0
        raw = actions.continuous
        return actions if raw is None else actions._replace(environment_continuous=self._transform.apply(raw))

    def _actions(self, masks: MaskArray | None, noise: Noise) -> Actions:
        """Draws actions from the graph's outputs."""
        outputs = self._graph.outputs
        if self._action.continuous_size == 0:
            discrete, log_prob = self._choose(outputs["logits"], masks, noise)
            return Actions(None, discrete, log_prob, None)
        raw, log_prob = self._draw(outputs["mean"], outputs["log_std"], noise)
        transformed = self._transform.apply(raw)
        if not self._action.discrete_branches:
            return Actions(raw, None, log_prob, transformed)
        discrete, discrete_log_prob = self._choose(outputs["logits"], masks, noise)
        return Actions(raw, discrete, np.concatenate((log_prob, discrete_log_prob), axis=1), transformed)

    def _draw(self, mean: FloatArray, log_std: FloatArray, noise: Noise) -> tuple[FloatArray, FloatArray]:
        if self._uniform:
            return draw_uniform(noise.uniform(), self.description.action_transform.squash)
        raw = draw_gaussian(mean, log_std, None if self._deterministic else noise.normal())
        return raw, self._log_prob(raw, mean, log_std)

    def _choose(self, logits: FloatArray, masks: MaskArray | None, noise: Noise) -> tuple[IntArray, FloatArray]:
        if self._uniform:
            return self._unweighted.choose(np.zeros_like(logits), masks, noise.gumbel())
        gumbel = None if self._deterministic else noise.gumbel()
        return (self._categorical if masks is None else self._masked).choose(logits, masks, gumbel)

    def _probe(self) -> bool:
        """Runs the graph on zeros and returns whether its logits are log-probabilities of each branch."""
        graph = self._graph
        graph.resize(1)
        if self._takes_masks:
            graph.inputs[ACTION_MASKS][...] = 1
        graph.run()
        for name, values in graph.outputs.items():
            if not np.isfinite(values).all():
                raise BadGraph(f"output {name} is not finite on observations of zeros")
        begin, normalized = 0, True
        for size in self._action.discrete_branches:
            total = log_sum_exp(graph.outputs["logits"][:, begin : begin + size])
            normalized = normalized and bool(np.abs(total).max() < _NORMALIZED_TOLERANCE)
            begin += size
        return normalized


def _payload_fault(description: PolicyDescription, payload: bytes) -> str | None:
    """Returns how the bytes differ from the description, or None."""
    if len(payload) > limits.MAX_POLICY_BYTES:
        return f"it has {len(payload)} bytes; at most {limits.MAX_POLICY_BYTES} are allowed"
    if len(payload) != description.size_bytes:
        return f"it has {len(payload)} bytes; {description.size_bytes} were announced"
    if hashlib.sha256(payload).digest() != description.sha256:
        return "its SHA-256 differs from the announced one"
    return None


def _description_fault(description: PolicyDescription, spec: BehaviorSpec) -> str | None:
    """Returns which part of a description this actor does not support, or None."""
    continuous, branches = spec.action.continuous_size > 0, bool(spec.action.discrete_branches)
    known = {Distribution.GAUSSIAN_CLIP3, Distribution.TANH_GAUSSIAN} if continuous else {Distribution.UNSPECIFIED}
    if description.continuous_distribution not in known:
        return f"continuous distribution {description.continuous_distribution!r} does not fit {spec.action}"
    if description.discrete_distribution is not (Distribution.CATEGORICAL if branches else Distribution.UNSPECIFIED):
        return f"discrete distribution {description.discrete_distribution!r} does not fit {spec.action}"
    if description.format is not PolicyFormat.ONNX:
        return f"format {description.format!r} is not supported; this actor runs ONNX"
    if len(description.action_transform.low) not in {0, spec.action.continuous_size}:
        return (
            f"its transform has {len(description.action_transform.low)} bounds for {spec.action.continuous_size} axes"
        )
    return None


def _observation_ports(description: PolicyDescription, spec: BehaviorSpec) -> list[tuple[int, Port]]:
    """Returns the inputs for the observations that the description lists, each with its position in the spec."""
    ports = [
        (position, Port(f"obs_{position}", observation.shape, observation.dtype))
        for position, observation in enumerate(spec.observations)
    ]
    return [(position, port) for position, port in ports if port.name in description.inputs]


def _inputs(description: PolicyDescription, spec: BehaviorSpec) -> list[Port]:
    """Returns the inputs that the graph must have; observations and masks only if the description lists them."""
    ports = [port for _, port in _observation_ports(description, spec)]
    if ACTION_MASKS in description.inputs and spec.action.discrete_branches:
        ports.append(Port(ACTION_MASKS, (spec.action.mask_size,), None))
    if description.memory_size:
        ports.append(Port(RECURRENT_IN, (description.memory_size,), np.dtype(np.float32)))
    if sorted(port.name for port in ports) != sorted(description.inputs):
        raise BadGraph(f"inputs {list(description.inputs)} are announced; {[port.name for port in ports]} are expected")
    return ports


def _outputs(description: PolicyDescription, spec: BehaviorSpec) -> list[Port]:
    """Returns the outputs that the graph must have."""
    float32 = np.dtype(np.float32)
    ports = []
    if spec.action.continuous_size:
        ports += [Port(name, (spec.action.continuous_size,), float32) for name in ("mean", "log_std")]
    if spec.action.discrete_branches:
        ports.append(Port("logits", (spec.action.mask_size,), float32))
    if description.memory_size:
        ports.append(Port(RECURRENT_OUT, (description.memory_size,), float32))
    return ports
