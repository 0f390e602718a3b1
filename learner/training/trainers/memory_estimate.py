"""Estimates what training a behavior takes: builds its networks on the meta device, where nothing is allocated."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

import structlog
import torch
from rollcast.enums import Squash
from rollcast.errors import Untrainable
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec
from rollcast.text import in_one_line
from torch import nn

from learner.link.footprint import EstimateMemory, Footprint, MemoryEstimate
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.extensions import TRAINERS, exists
from learner.shared.settings.hyperparameters import OWN_TRAINERS
from learner.shared.settings.rewards import LearnedSignalSettings
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.replay import replay_row_bytes, replay_size
from learner.training.networks.fit import require_critic_only, require_fit
from learner.training.networks.kept import KeptBytes
from learner.training.networks.observations import ObservationError
from learner.training.rewards.footprint import SignalFootprint, signal_footprint
from learner.training.rewards.learned import SignalSetup
from learner.training.trainers import registry
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.companions.group import companion_data_bytes, companion_networks
from learner.training.trainers.on_policy import ring_of

log = structlog.get_logger(__name__)

_FLOAT_BYTES: Final = 4
_COPIES: Final = 7
"""Copies of everything that learns: parameters, gradient, two moments of Adam, and three that a failed update restores.
"""
_FIXED_COPIES: Final = 2
"""Copies of everything that gradients do not change (targets of critics and of rnd): parameters, and one that a failed
update restores."""
_BEYOND_BYTES: Final = 2**63
"""Reported for networks with a layer of more bytes than a tensor can have."""
_OVERFLOW: Final = "overflow"
"""Word in torch's message when a tensor would exceed the largest size."""
_OWN_SIGNALS: Final = frozenset({"curiosity", "rnd", "gail"})
_Made = TypeVar("_Made")


class BuildsNetworks(Protocol):
    """A trainer type whose networks can be measured: built-in, or from a package's entry point."""

    def build_networks(
        self, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> nn.Module:
        """Builds everything to train, on torch's default device; the attribute ``policy`` is the acting network."""

    def minibatch_bytes(self, network: Any, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts the bytes of a minibatch (`learner.training.networks.kept`); on the meta device."""


def load_meta_device() -> None:
    """Loads the modules that torch loads at the first computation on the meta device.

    Loading these 800 modules takes more than a second, during which the service would not answer. Call this before the
    learner listens.
    """
    with torch.device("meta"):
        torch.nn.Linear(1, 1)(torch.zeros(1, 1))


class EstimatorThread:
    """Answers questions of the service one at a time in a separate thread, independent of the trainers.

    The process must outlive the thread: torch aborts a process whose interpreter ends first.

    Args:
        service: Settings of the service.
        send: Sends an answer to the service.
        ranks: Number of processes that train together.
    """

    def __init__(self, service: ServiceSettings, send: Callable[[MemoryEstimate], object], ranks: int = 1) -> None:
        self._service = service
        self._send = send
        self._ranks = ranks
        self._asked: queue.SimpleQueue[EstimateMemory | None] = queue.SimpleQueue()
        self._is_closed = False

    def start(self) -> None:
        """Starts answering questions."""
        threading.Thread(target=self._answer, name="memory-estimate").start()

    def ask(self, question: EstimateMemory) -> None:
        """Takes a question and returns at once; callable from any thread."""
        self._asked.put(question)

    def close(self) -> None:
        """Ends the thread after the current question; the service answers the remaining ones itself."""
        self._is_closed = True
        self._asked.put(None)

    def _answer(self) -> None:
        while (question := self._asked.get()) is not None and not self._is_closed:
            self._send(self._estimate(question))

    def _estimate(self, question: EstimateMemory) -> MemoryEstimate:
        try:
            return MemoryEstimate(
                question.number, estimate_memory(question.spec, question.settings, self._service, self._ranks)
            )
        except Untrainable as error:
            return MemoryEstimate(question.number, refusal=str(error), metadata=error.metadata)
        except BaseException as error:  # a package's code may exit; later questions need the thread
            log.error("judge_failed", behavior=question.spec.name, error=in_one_line(error), exc_info=error)
            return MemoryEstimate(question.number, fault=in_one_line(error))


def estimate_memory(
    spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings, ranks: int = 1
) -> Footprint:
    """Counts the bytes that training a behavior takes; callable from any thread.

    Args:
        spec: Observations and actions of the behavior.
        settings: The behavior's block of the run file.
        service: Settings of the service.
        ranks: Number of processes that train together.

    Raises:
        Untrainable: The networks of the run file cannot be built for the behavior.
    """
    replays = settings.traits.replay
    try:
        rows = Footprint(*_experience(spec, settings, service), replays=replays, ranks=ranks)
        return _counted(spec, settings, rows)
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
    """Adds networks, signals and a minibatch to the size of the experience.

    Raises:
        UserError: A network cannot be built for the behavior.
        RuntimeError: A tensor of a network would be too large for torch.
    """
    kind, calls = _trainer(settings), _Calls(settings.trainer_type)
    with torch.device("meta"):
        network = calls.networks(lambda: kind.build_networks(spec, settings, None))
    policy_bytes = _FLOAT_BYTES * sum(value.numel() for value in network.get_submodule("policy").parameters())
    counted = replace(experience, policy_bytes=policy_bytes, network_bytes=trained_bytes(network))
    if policy_bytes > MAX_POLICY_BYTES:
        return counted  # refused already, whatever the rest takes
    # A ring has each step once; a replay memory draws steps repeatedly.
    part_steps = settings.hyperparameters.part_steps
    rows = part_steps if experience.replays else min(part_steps, experience.ring_rows)
    signals = _signals(spec, settings)
    return replace(
        counted,
        batch_bytes=calls.made("minibatch_bytes", lambda: kind.minibatch_bytes(network, spec, settings).of(rows)),
        signal_bytes=sum(trained_bytes(found.network) + found.kept.of(rows) for found in signals.values()),
        companion_bytes=companion_data_bytes(spec, settings)
        + sum(map(trained_bytes, companion_networks(spec, settings))),
    )


def require_initial_fit(spec: BehaviorSpec, settings: TrainerSettings, state: Mapping[str, Any]) -> None:
    """Compares the networks of a saved state with those that the settings build; allocates nothing.

    States of packages' trainers are not checked.

    Args:
        spec: Observations and actions of the behavior when the state was saved.
        settings: The behavior's block of the run file.
        state: Result of the trainer's ``state_dict``.

    Raises:
        ValueError: The networks differ, or the observations that the policy reads.
        KeyError, TypeError: The state has another form.
        UserError: The networks cannot be built for the behavior.
    """
    if settings.trainer_type not in registry.own_trainers():
        return
    require_critic_only(state, settings.network_settings.critic_only)
    with torch.device("meta"):
        network = _trainer(settings).build_networks(spec, settings, None)
    model = state["model"]
    require_fit(model["networks" if "networks" in model else "network"], network.state_dict())


def require_resumed_fit(spec: BehaviorSpec, settings: TrainerSettings, state: Mapping[str, Any]) -> None:
    """Compares all networks of a saved state with those of a run that continues from it; allocates nothing.

    Raises as `require_initial_fit`, and ValueError for another trainer or a reward signal that the state lacks.
    """
    if state["trainer_type"] != settings.trainer_type:
        raise ValueError(f"it is of trainer {state['trainer_type']!s:.40}, not of {settings.trainer_type}")
    if settings.trainer_type not in registry.own_trainers():
        return
    require_initial_fit(spec, settings, state)
    saved = state["model"]["signals"]
    for name, found in _signals(spec, settings).items():
        if name not in saved:
            raise ValueError(f"reward signal {name} is missing from the saved state")
        if name in _OWN_SIGNALS:  # of a package's, the form is its own
            require_fit(saved[name]["network"], found.network.state_dict())


class _Calls:
    """Calls a trainer's code so that a fault of a package reaches the actor as one line.

    Args:
        trainer_type: Trainer type of the run file.
    """

    def __init__(self, trainer_type: str) -> None:
        self._trainer_type = trainer_type
        self._is_ours = trainer_type in registry.own_trainers()

    def made(self, method: str, call: Callable[[], _Made]) -> _Made:
        """Returns the result of a method.

        Raises:
            UserError: The method belongs to a package and raised.
            RuntimeError: A tensor would be too large for torch.
        """
        try:
            return call()
        except UserError:
            raise
        except BaseException as error:  # a package may exit
            if self._is_ours or (isinstance(error, RuntimeError) and _OVERFLOW in str(error)):
                raise
            raise self._fault(f"{method} failed: {in_one_line(error)}") from error

    def networks(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Returns the result of ``build_networks``.

        Raises:
            UserError: The method belongs to a package and raised or returned something else.
            RuntimeError: A tensor would be too large for torch.
        """
        found: Any = self.made("build_networks", build)
        if not isinstance(found, nn.Module):
            raise self._fault(f"build_networks returned a value of type {type(found).__name__}, not a torch.nn.Module")
        if not isinstance(dict(found.named_children()).get("policy"), nn.Module):
            raise self._fault(f"build_networks returned a {type(found).__name__} without an attribute policy")
        return found

    def _fault(self, what: str) -> UserError:
        return UserError(
            ExitCode.RUN_FILE, f"trainer_type names {self._trainer_type!r}, whose {what}; correct its code"
        )


def trained_bytes(network: nn.Module) -> int:
    """Returns the bytes of parameters and of everything kept for them during training."""
    learned = sum(value.numel() for value in network.parameters() if value.requires_grad)
    fixed = sum(value.numel() for value in network.parameters() if not value.requires_grad)
    return _FLOAT_BYTES * (_COPIES * learned + _FIXED_COPIES * fixed)


def _trainer(settings: TrainerSettings) -> BuildsNetworks:
    """Returns the type that builds the networks.

    A package's trainer that does not build networks is treated as the trainer whose settings it extends, or else as an
    actor-critic.

    Raises:
        UserError: A package's trainer cannot be imported.
    """
    own = registry.own_trainers()
    if settings.trainer_type not in own:
        found: Any = registry.find(settings.trainer_type) if exists(settings.trainer_type, TRAINERS) else None
        if hasattr(found, "build_networks") and hasattr(found, "minibatch_bytes"):
            theirs: BuildsNetworks = found
            return theirs
    for model in type(settings.hyperparameters).__mro__:
        for name, trainer in OWN_TRAINERS.items():
            if trainer.settings_model is model and name in own:
                ours: BuildsNetworks = registry.find(name)  # type: ignore[assignment]
                return ours
    return ActorCriticTrainer


def _signals(spec: BehaviorSpec, settings: TrainerSettings) -> dict[str, SignalFootprint]:
    """Builds and counts the networks of reward signals, by name."""
    squash = Squash.TANH if settings.traits.squashed else Squash.CLIP3_DIV3
    setup = SignalSetup(spec, torch.Generator(), torch.device("meta"), squash=squash)
    learned = {
        name: signal
        for name, signal in settings.reward_signals.active().items()
        if isinstance(signal, LearnedSignalSettings)
    }
    return {name: signal_footprint(name, signal, setup) for name, signal in learned.items()}


def _experience(spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> tuple[int, int]:
    """Returns the rows of the ring or of the replay memory, and the bytes of a row."""
    if not settings.traits.replay:
        columns, size = ring_of(spec, settings, service)
        return size.capacity_rows, sum(column.row_bytes for column in columns)
    memory = settings.network_settings.memory
    row_bytes = replay_row_bytes(spec, 0 if memory is None else memory.memory_size)
    buffer_size, horizon = settings.hyperparameters.buffer_size, settings.time_horizon
    return replay_size(row_bytes, buffer_size=buffer_size, time_horizon=horizon).capacity_rows, row_bytes
