"""Whether a declared behavior can be trained here: refused at its declaration, it costs one actor and not the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rollcast.enums import ObservationKind
from rollcast.errors import Untrainable
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec, ObservationSpec

from learner.ingest.boards import board_fault, head_inputs, row_numbers, tower_parameters
from learner.ingest.network_size import (
    EMBEDDING,
    attention_parameters,
    conditioning_parameters,
    encoded_width,
    goal_fault,
    is_entities,
    is_picture,
    memory_parameters,
)
from learner.ingest.pictures import encoded_size, picture_fault
from learner.ingest.replay_size import keeps_replay, replay_row_bytes, replay_size
from learner.ingest.ring_size import on_policy_row_bytes, ring_size
from learner.settings.network import NetworkSettings
from learner.settings.rewards import LearnedSignalSettings
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings

_COPIES: Final = 8
"""Of the first layer while it is trained: actor and critic, each with its gradient and two moments of Adam."""

_REPLAY_COPIES: Final = 25
"""The same of trainers with replay: policy and twin critics with gradients and moments, what an update goes back to, and
the targets."""

_SIGNAL_COPIES: Final = 8
"""Of the first layer of a reward signal's network: with gradient, moments, what an update goes back to, and a target."""

_BATCH_COPIES: Final = 3
"""Of what a minibatch leaves: in actor and critic, and the gradient of one of them."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that training a behavior takes from the start, in bytes.

    Attributes:
        ring_rows: of its ring, or of its replay memory.
        row_bytes: of each.
        policy_bytes: parameters between the observations and the first layer; all others are few beside them, or the
            run file's own. Those of attention, of a hyper-network and of a memory are among them.
        batch_bytes: what a minibatch leaves in attention, generated weights and memory for the way back.
        signal_bytes: of the networks of reward signals, and what a minibatch leaves in them.
        replays: whether the rows are those of a replay memory.
    """

    ring_rows: int
    row_bytes: int
    policy_bytes: int
    batch_bytes: int
    signal_bytes: int = 0
    replays: bool = False

    @property
    def total_bytes(self) -> int:
        """Ring, networks and a minibatch."""
        networks = (_REPLAY_COPIES if self.replays else _COPIES) * self.policy_bytes + self.signal_bytes
        return self.ring_rows * self.row_bytes + networks + self.batch_bytes


def footprint(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
    """Estimates what training a behavior takes; every picture must have passed `check_pictures`."""
    network = settings.network_settings
    rows, row_bytes = _experience(spec, settings, service)
    seen, batch_size = spec.observations, settings.hyperparameters.batch_size
    outputs = spec.action.mask_size + spec.action.continuous_size
    parameters = _seen_parameters(spec, network) + head_inputs(seen, network) * outputs + memory_parameters(network)
    batch_bytes = _BATCH_COPIES * 4 * batch_size * row_numbers(seen, network)
    signal_bytes = sum(
        4 * (_SIGNAL_COPIES * _seen_parameters(spec, signal) + _BATCH_COPIES * batch_size * row_numbers(seen, signal))
        for signal in signal_networks(settings).values()
    )
    if replays := keeps_replay(settings):
        batch_bytes *= 2  # the critics see each minibatch twice, and what comes after it
    return Footprint(rows, row_bytes, 4 * parameters, batch_bytes, signal_bytes, replays)


def _experience(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> tuple[int, int]:
    """Returns rows and bytes of a row of the ring, or of the replay memory."""
    buffer_size, horizon = settings.hyperparameters.buffer_size, settings.time_horizon
    memory = settings.network_settings.memory
    memory_size = 0 if memory is None else memory.memory_size
    if keeps_replay(settings):
        row_bytes = replay_row_bytes(spec, memory_size)
        return replay_size(row_bytes, buffer_size=buffer_size, time_horizon=horizon).capacity_rows, row_bytes
    row_bytes = on_policy_row_bytes(spec, memory_size)
    size = ring_size(
        row_bytes,
        ring_steps=service.device_ring_steps,
        buffer_size=buffer_size,
        time_horizon=horizon,
        chunk_steps=chunk_steps(spec, service),
    )
    return size.capacity_rows, row_bytes


def signal_networks(settings: TrainerSettings) -> Mapping[str, NetworkSettings]:
    """Returns the networks that reward signals have of their own, by signal; they have no memory."""
    return {
        name: signal.network_settings.model_copy(update={"memory": None})
        for name, signal in settings.reward_signals.active().items()
        if isinstance(signal, LearnedSignalSettings)
    }


def _seen_parameters(spec: BehaviorSpec, network: NetworkSettings) -> int:
    """Counts parameters between the observations and the first layer; see `Footprint.policy_bytes`."""
    seen = spec.observations
    if network.tower is not None:
        return tower_parameters(seen, network, network.tower)
    inputs = sum(_inputs(observation, network) for observation in seen)
    inputs += EMBEDDING if any(is_entities(observation) for observation in seen) else 0
    return network.hidden_units * inputs + attention_parameters(seen, network) + conditioning_parameters(seen, network)


def chunk_steps(spec: BehaviorSpec, service: ServiceSettings) -> int:
    """Returns the steps of a full chunk."""
    return service.max_chunk_steps or -(-service.target_chunk_bytes // spec.step_bytes)


def check_observations(spec: BehaviorSpec, network: NetworkSettings) -> None:
    """Refuses observations that have no network: flattened in silence they would train something else.

    Raises:
        Untrainable: one is a list of entities that has not two axes, or a goal of variable length that shall condition
            the network.
    """
    for observation in spec.observations:
        fault = goal_fault(observation) if network.goal_conditioning_type == "hyper" else None
        if observation.kind is ObservationKind.ENTITIES and not (is_entities(observation) and observation.size):
            fault = (
                f"observation {observation.name!r} is a list of entities of shape {list(observation.shape)}; it must be "
                "[max, size], neither of them 0"
            )
        if fault is not None:
            raise Untrainable(
                f"{spec.name}: {fault}", metadata={"behavior": spec.name, "observation": observation.name}
            )


def check_pictures(spec: BehaviorSpec, network: NetworkSettings) -> None:
    """Refuses pictures that are too small for the encoder of the run file, and what is no board for its tower.

    Raises:
        Untrainable: one is.
    """
    if network.tower is not None:
        fault = board_fault(spec.observations)
        if fault is not None:
            raise Untrainable(f"{spec.name}: {fault}", metadata={"behavior": spec.name})
        return
    for observation in spec.observations:
        fault = picture_fault(observation, network.vis_encode_type) if is_picture(observation) else None
        if fault is not None:
            raise Untrainable(
                f"{spec.name}: {fault}", metadata={"behavior": spec.name, "observation": observation.name}
            )


def check_footprint(spec: BehaviorSpec, found: Footprint, *, taken_bytes: int, limit_bytes: int) -> None:
    """Refuses a behavior that takes more memory than there is.

    Args:
        spec: the behavior.
        found: what it takes.
        taken_bytes: by the other behaviors of the run.
        limit_bytes: all behaviors together.

    Raises:
        Untrainable: its policy is larger than actors take, or memory does not suffice.
    """
    if found.policy_bytes > MAX_POLICY_BYTES:
        raise Untrainable(
            f"the policy of {spec.name} would have more than {found.policy_bytes} bytes; actors take at most "
            f"{MAX_POLICY_BYTES}: lower hidden_units, or send smaller observations",
            metadata={"behavior": spec.name, "policy_bytes": str(found.policy_bytes)},
        )
    if taken_bytes + found.total_bytes > limit_bytes:
        kept = "a replay memory" if found.replays else "a ring"
        signals = f", and {found.signal_bytes} of reward signals" if found.signal_bytes else ""
        others = f" beside {taken_bytes} of other behaviors" if taken_bytes else ""
        raise Untrainable(
            f"training {spec.name} takes {found.total_bytes} bytes{others} ({kept} of {found.ring_rows} rows of "
            f"{found.row_bytes} bytes, its networks, and {found.batch_bytes} of a minibatch{signals}), and "
            f"rollcast.max_training_bytes is {limit_bytes} (half of what was free at the start, if the run file does not "
            "say): lower buffer_size, time_horizon, batch_size or hidden_units, send smaller observations, or raise it",
            metadata={
                "behavior": spec.name,
                "needed_bytes": str(taken_bytes + found.total_bytes),
                "max_training_bytes": str(limit_bytes),
            },
        )


def _inputs(observation: ObservationSpec, network: NetworkSettings) -> int:
    if is_picture(observation):
        return encoded_size(observation, network.vis_encode_type)
    return encoded_width(observation, network)
