"""Judges what training a behavior takes: its networks are built on the meta device, where nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

import torch
from rollcast.enums import Squash
from rollcast.errors import Untrainable
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec
from torch import nn

from learner.buffers.replay import replay_row_bytes, replay_size
from learner.common.exits import ExitCode, UserError
from learner.common.plugins import in_one_line
from learner.link.footprint import Footprint
from learner.networks.kept import KeptBytes
from learner.networks.observations import ObservationError
from learner.rewards.footprint import SignalFootprint, signal_footprint
from learner.rewards.learned import SignalSetup
from learner.settings.extensions import TRAINERS, declared
from learner.settings.hyperparameters import OWN_TRAINERS
from learner.settings.rewards import LearnedSignalSettings
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings
from learner.trainers import registry
from learner.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.trainers.on_policy import ring_of

_FLOAT_BYTES: Final = 4
_COPIES: Final = 7
"""Of all that learns: parameters, gradient and two moments of Adam, and the three that a failed update restores."""
_FIXED_COPIES: Final = 2
"""Of what is not learned by gradients (targets of critics and of rnd): parameters, and what a failed update restores."""
_BEYOND_BYTES: Final = 2**63
"""Stands for networks with a layer of more bytes than a tensor can have."""
_OVERFLOW: Final = "overflow"
"""Torch's word where a tensor would have more bytes than there are numbers."""
_Made = TypeVar("_Made")


class BuildsNetworks(Protocol):
    """A trainer type whose networks can be judged: one of ours, or what the entry point of a package names."""

    def build_networks(
        self, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> nn.Module:
        """Builds everything that is trained, on torch's default device; the attribute ``policy`` is what acts."""

    def minibatch_bytes(self, network: Any, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts what a minibatch takes (`learner.networks.kept`); on the meta device."""


def judge(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
    """Counts what training a behavior takes; from any thread.

    Args:
        spec: what it sees and does.
        settings: its block of the run file.
        service: the service's own settings.

    Raises:
        Untrainable: the networks of the run file cannot be built for it.
    """
    try:
        return _counted(
            spec, settings, Footprint(*_experience(spec, settings, service), replays=settings.traits.replay)
        )
    except ObservationError as error:
        named = {"observation": error.observation} if error.observation else {}
        raise Untrainable(f"{spec.name}: {error.message}", metadata={"behavior": spec.name, **named}) from error
    except UserError as error:
        raise Untrainable(f"{spec.name}: {error.message}", metadata={"behavior": spec.name}) from error
    except RuntimeError as error:
        if _OVERFLOW not in str(error):
            raise
        return Footprint(*_experience(spec, settings, service), policy_bytes=_BEYOND_BYTES, network_bytes=_BEYOND_BYTES)


def _counted(spec: BehaviorSpec, settings: TrainerSettings, experience: Footprint) -> Footprint:
    """Adds networks, signals and a minibatch to what experience takes.

    Raises:
        UserError: a network cannot be built for the behavior.
        RuntimeError: a tensor of one would be too large for torch.
    """
    kind, calls = _trainer(settings), _Calls(settings.trainer_type)
    with torch.device("meta"):
        network = calls.networks(lambda: kind.build_networks(spec, settings, None))
    policy_bytes = _FLOAT_BYTES * sum(value.numel() for value in network.get_submodule("policy").parameters())
    counted = replace(experience, policy_bytes=policy_bytes, network_bytes=trained_bytes(network))
    if policy_bytes > MAX_POLICY_BYTES:
        return counted  # refused, whatever else it takes
    # A ring has each step once; a replay memory draws steps repeatedly.
    part_steps = settings.hyperparameters.part_steps
    rows = part_steps if experience.replays else min(part_steps, experience.ring_rows)
    signals = _signals(spec, settings)
    return replace(
        counted,
        batch_bytes=calls.made("minibatch_bytes", lambda: kind.minibatch_bytes(network, spec, settings).of(rows)),
        signal_bytes=sum(trained_bytes(found.network) + found.kept.of(rows) for found in signals),
    )


class _Calls:
    """Calls a trainer's own code, so that a fault of a package is told to the actor in one line.

    Args:
        trainer_type: of the run file.
    """

    def __init__(self, trainer_type: str) -> None:
        self._trainer_type = trainer_type
        self._is_ours = trainer_type in registry.own_trainers()

    def made(self, method: str, call: Callable[[], _Made]) -> _Made:
        """Returns what a method makes.

        Raises:
            UserError: it belongs to a package, and raised.
            RuntimeError: a tensor would be too large for torch.
        """
        try:
            return call()
        except UserError:
            raise
        except Exception as error:
            if self._is_ours or (isinstance(error, RuntimeError) and _OVERFLOW in str(error)):
                raise
            raise self._fault(f"{method} failed: {in_one_line(error)}") from error

    def networks(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Returns what ``build_networks`` makes.

        Raises:
            UserError: it belongs to a package, and raised or made something else.
            RuntimeError: a tensor would be too large for torch.
        """
        found: Any = self.made("build_networks", build)
        if not isinstance(found, nn.Module):
            raise self._fault(f"build_networks made a value of type {type(found).__name__}, not a torch.nn.Module")
        if not isinstance(dict(found.named_children()).get("policy"), nn.Module):
            raise self._fault(f"build_networks made a {type(found).__name__} without an attribute policy")
        return found

    def _fault(self, what: str) -> UserError:
        return UserError(
            ExitCode.RUN_FILE, f"trainer_type names {self._trainer_type!r}, whose {what}; the package must be repaired"
        )


def trained_bytes(network: nn.Module) -> int:
    """Returns the bytes of parameters, and of all that is kept of them while they are trained."""
    learned = sum(value.numel() for value in network.parameters() if value.requires_grad)
    fixed = sum(value.numel() for value in network.parameters() if not value.requires_grad)
    return _FLOAT_BYTES * (_COPIES * learned + _FIXED_COPIES * fixed)


def _trainer(settings: TrainerSettings) -> BuildsNetworks:
    """Returns what builds the networks.

    A trainer of a package that does not build them by itself is taken for the one whose settings its own extend, or else
    for an actor-critic.

    Raises:
        UserError: a package's trainer cannot be imported.
    """
    own = registry.own_trainers()
    if settings.trainer_type not in own:
        found: Any = registry.find(settings.trainer_type) if settings.trainer_type in declared(TRAINERS) else None
        if hasattr(found, "build_networks") and hasattr(found, "minibatch_bytes"):
            theirs: BuildsNetworks = found
            return theirs
    for model in type(settings.hyperparameters).__mro__:
        for name, trainer in OWN_TRAINERS.items():
            if trainer.settings_model is model and name in own:
                ours: BuildsNetworks = registry.find(name)  # type: ignore[assignment]
                return ours
    return ActorCriticTrainer


def _signals(spec: BehaviorSpec, settings: TrainerSettings) -> list[SignalFootprint]:
    """Builds and counts the networks of reward signals."""
    squash = Squash.TANH if settings.traits.squashed else Squash.CLIP3_DIV3
    setup = SignalSetup(spec, torch.Generator(), torch.device("meta"), squash=squash)
    learned = {
        name: signal
        for name, signal in settings.reward_signals.active().items()
        if isinstance(signal, LearnedSignalSettings)
    }
    return [signal_footprint(name, signal, setup) for name, signal in learned.items()]


def _experience(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> tuple[int, int]:
    """Returns rows and bytes of a row of the ring, or of the replay memory."""
    if not settings.traits.replay:
        columns, size = ring_of(spec, settings, service)
        return size.capacity_rows, sum(column.row_bytes for column in columns)
    memory = settings.network_settings.memory
    row_bytes = replay_row_bytes(spec, 0 if memory is None else memory.memory_size)
    buffer_size, horizon = settings.hyperparameters.buffer_size, settings.time_horizon
    return replay_size(row_bytes, buffer_size=buffer_size, time_horizon=horizon).capacity_rows, row_bytes
