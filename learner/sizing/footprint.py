"""Estimates the memory that training a behavior takes, and refuses a declaration that cannot be trained here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollcast.enums import ObservationKind
from rollcast.errors import Untrainable
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec

from learner.settings.hyperparameters import SharedCriticHyperparameters
from learner.settings.network import NetworkSettings
from learner.settings.rewards import LearnedSignalSettings
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings
from learner.sizing.networks import board_fault, goal_fault, is_entities, is_picture, picture_fault, row_numbers
from learner.sizing.parameters import (
    policy_parameters,
    signal_network,
    signal_parameters,
    twin_parameters,
    value_parameters,
)
from learner.sizing.replay_size import replay_row_bytes, replay_size
from learner.sizing.ring_size import on_policy_row_bytes, ring_size

_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Returns what can be taken without pushing anything out: of the machine, and of the container if it has a limit.

    Args:
        meminfo: of Linux; without it, all the machine's memory counts as free.
        cgroup: of this container (version 2).
    """
    free = _machine_bytes(meminfo)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    return free if limit is None else max(0, min(free, limit - (used or 0)))


def _machine_bytes(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # another system, or another form: the next best number follows
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # no container, or no limit ("max")


_COPIES: Final = 7
"""Of all that learns: parameters, gradient and two moments of Adam, and what an update that fails goes back to."""

_FIXED_COPIES: Final = 2
"""Of what is not learned by gradients (the target of twin critics, the target of rnd): parameters, and what an update goes back to."""

_BATCH_COPIES: Final = 3
"""Of what a minibatch leaves: in actor and critic, and the gradient of one of them."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that training a behavior takes from the start, in bytes.

    Attributes:
        ring_rows: of its ring, or of its replay memory.
        row_bytes: of each.
        policy_bytes: parameters of the policy, as actors get them.
        network_bytes: policy, critics and targets, with all that an optimizer keeps of them.
        batch_bytes: what a minibatch (each part of it, if it is computed in parts) leaves in layers, attention, generated
            weights and memory for the way back.
        signal_bytes: of the networks of reward signals, and what a minibatch leaves in them.
        replays: whether the rows are those of a replay memory.
    """

    ring_rows: int
    row_bytes: int
    policy_bytes: int
    network_bytes: int
    batch_bytes: int
    signal_bytes: int = 0
    replays: bool = False

    @property
    def total_bytes(self) -> int:
        """Ring, networks and a minibatch."""
        return self.ring_rows * self.row_bytes + self.network_bytes + self.batch_bytes + self.signal_bytes


def footprint(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
    """Estimates what training a behavior takes; every picture must have passed `check_pictures`."""
    network, hyper = settings.network_settings, settings.hyperparameters
    rows, row_bytes = _experience(spec, settings, service)
    replays = settings.traits.replay
    batch_rows = hyper.part_steps if replays else min(hyper.part_steps, rows)  # replay memory draws steps repeatedly
    copies = _COPIES + (hyper.part_steps < hyper.batch_size)  # one more adds gradients up
    policy, learned, fixed = _network_parameters(spec, settings)
    batch_bytes = _BATCH_COPIES * 4 * batch_rows * row_numbers(spec.observations, network)
    if replays:
        batch_bytes *= 2  # the critics see each minibatch twice, and what comes after it
    return Footprint(
        ring_rows=rows,
        row_bytes=row_bytes,
        policy_bytes=4 * policy,
        network_bytes=4 * (copies * (policy + learned) + _FIXED_COPIES * fixed),
        batch_bytes=batch_bytes,
        signal_bytes=_signal_bytes(spec, settings, batch_rows),
        replays=replays,
    )


def _network_parameters(spec: BehaviorSpec, settings: TrainerSettings) -> tuple[int, int, int]:
    """Counts parameters of the policy, of what else is learned beside it, and of targets."""
    network, signals = settings.network_settings, len(settings.reward_signals.active())
    if settings.traits.replay:
        critics = twin_parameters(spec, network, signals)
        return policy_parameters(spec, network, squashed=settings.traits.squashed), critics, critics
    hyper = settings.hyperparameters
    shared = isinstance(hyper, SharedCriticHyperparameters) and hyper.shared_critic
    return policy_parameters(spec, network), value_parameters(spec, network, signals, shared=shared), 0


def _signal_bytes(spec: BehaviorSpec, settings: TrainerSettings, batch_rows: int) -> int:
    """Returns what reward signals with networks take, and what a minibatch leaves in them."""
    found = 0
    for name, signal in _learned_signals(settings).items():
        count = signal_parameters(name, signal, spec)
        left = _BATCH_COPIES * batch_rows * row_numbers(spec.observations, signal_network(name, signal))
        found += 4 * (_COPIES * count.learned + _FIXED_COPIES * count.fixed + left)
    return found


def _experience(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> tuple[int, int]:
    """Returns rows and bytes of a row of the ring, or of the replay memory."""
    buffer_size, horizon = settings.hyperparameters.buffer_size, settings.time_horizon
    memory = settings.network_settings.memory
    memory_size = 0 if memory is None else memory.memory_size
    if settings.traits.replay:
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


def _learned_signals(settings: TrainerSettings) -> Mapping[str, LearnedSignalSettings]:
    """Returns the reward signals with networks of their own, by name."""
    active = settings.reward_signals.active()
    return {name: signal for name, signal in active.items() if isinstance(signal, LearnedSignalSettings)}


def signal_networks(settings: TrainerSettings) -> Mapping[str, NetworkSettings]:
    """Returns the networks that reward signals have of their own, by signal; they have no memory."""
    return {name: signal_network(name, signal) for name, signal in _learned_signals(settings).items()}


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
            f"{MAX_POLICY_BYTES}: lower network_settings (hidden_units, num_layers, memory_size, or a tower's width), or send "
            "smaller observations",
            metadata={"behavior": spec.name, "policy_bytes": str(found.policy_bytes)},
        )
    if taken_bytes + found.total_bytes > limit_bytes:
        kept = "a replay memory" if found.replays else "a ring"
        signals = f", and {found.signal_bytes} of reward signals" if found.signal_bytes else ""
        others = f" beside {taken_bytes} of other behaviors" if taken_bytes else ""
        raise Untrainable(
            f"training {spec.name} takes {found.total_bytes} bytes{others} ({kept} of {found.ring_rows} rows of "
            f"{found.row_bytes} bytes, {found.network_bytes} of its networks, {found.batch_bytes} of a minibatch{signals}), "
            f"and rollcast.max_training_bytes is {limit_bytes} (half of what was free at the start, if the run file does not "
            "say): lower buffer_size, time_horizon, batch_size, hidden_units or num_layers, send smaller observations, or "
            "raise it",
            metadata={
                "behavior": spec.name,
                "needed_bytes": str(taken_bytes + found.total_bytes),
                "max_training_bytes": str(limit_bytes),
            },
        )
