"""The reward signals of a behavior, in the order of their value heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.extensions import REWARD_SIGNALS, load
from learner.shared.settings.rewards import (
    CuriositySettings,
    ExtrinsicSettings,
    GAILSettings,
    RewardSignals,
    RewardSignalSettings,
    RNDSettings,
)
from learner.training.networks.named import NamedModels
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.rewards.curiosity import CuriosityReward
from learner.training.rewards.gail import GAILReward
from learner.training.rewards.learned import SignalSetup
from learner.training.rewards.rnd import RNDReward
from learner.training.rewards.transitions import Transitions

EXTRINSIC = "extrinsic"


@dataclass(frozen=True, slots=True)
class ExtrinsicReward:
    """The environment's reward (the agent's own plus its group's) times a strength.

    Attributes:
        gamma: Discount factor.
        strength: Factor of the rewards.
        clip: Largest size of a reward before multiplication by the strength; None does not clip.
        name: Name in the run file.
        ignores_ends: False: nothing follows a terminal state.
        needs_observations: False.
    """

    gamma: float
    strength: float
    clip: float | None = None
    name: str = EXTRINSIC
    ignores_ends: bool = False
    needs_observations: bool = False

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]`` float64."""
        reward = transitions.reward.double()
        return (reward if self.clip is None else reward.clamp(-self.clip, self.clip)) * self.strength


_MAX_SHOWN: Final = 60
"""Most characters of a package's value in a message."""


class RewardSignal(Protocol):
    """One stream of rewards with its own discount."""

    @property
    def name(self) -> str:
        """Name in the run file."""

    @property
    def gamma(self) -> float:
        """Discount factor."""

    @property
    def ignores_ends(self) -> bool:
        """Returns whether the value after a terminal step counts (true of curiosity-like signals)."""

    @property
    def needs_observations(self) -> bool:
        """Returns whether `evaluate` uses more than the environment's reward."""

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]`` times the signal's strength; called under ``torch.no_grad``."""


@runtime_checkable
class LearnedSignal(RewardSignal, Protocol):
    """A signal with a network, trained on the policy's minibatches."""

    def update(self, transitions: Transitions) -> None:
        """Takes one gradient step; reads nothing back from the device."""

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all learned parameters are finite; otherwise, the update is undone."""

    def statistics(self) -> Mapping[str, float]:
        """Returns statistics of the steps since the last call, under ML-Agents' names; waits for the device."""

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the states of network and optimizer."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a saved state.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The state does not fit.
        """


def build_signals(
    settings: RewardSignals,
    spec: BehaviorSpec,
    generator: torch.Generator,
    device: torch.device,
    *,
    reduce: Reduce | None = None,
    squash: Squash = Squash.CLIP3_DIV3,
    models: NamedModels | None = None,
) -> list[RewardSignal]:
    """Builds the signals named in the run file, in the order extrinsic, curiosity, rnd, gail, packages'.

    Args:
        settings: The block of the run file.
        spec: Observations and actions of the behavior.
        generator: Draws the initial weights.
        device: Device of all tensors.
        reduce: Combines numbers over several learners; None for one learner.
        squash: How actors squash a continuous draw.
        models: Models of the behavior's companions; None without companions.

    Raises:
        UserError: A signal does not fit the behavior, or there is none.
    """
    setup = SignalSetup(spec, generator, device, reduce or SingleLearner(), squash, models or NamedModels())
    signals = [_build(name, signal, setup) for name, signal in settings.active().items()]
    if not signals:
        raise UserError(ExitCode.RUN_FILE, "reward_signals is empty, so nothing would be learned: add extrinsic: {}")
    return signals


def _build(name: str, settings: RewardSignalSettings, setup: SignalSetup) -> RewardSignal:
    """Builds one signal by name: settings of a package may extend those of any built-in signal.

    Raises:
        UserError: The signal does not fit the behavior.
    """
    match name, settings:
        case "extrinsic", ExtrinsicSettings():
            return ExtrinsicReward(settings.gamma, settings.strength, settings.reward_clip)
        case "curiosity", CuriositySettings():
            return CuriosityReward(settings, setup)
        case "rnd", RNDSettings():
            return RNDReward(settings, setup)
        case "gail", GAILSettings():
            return GAILReward(settings, setup)
        case _:
            return _added(name, settings, setup)


_NEEDED: Final = ("name", "gamma", "ignores_ends", "needs_observations", "evaluate")
_NEEDED_TO_LEARN: Final = ("is_finite", "statistics", "state_dict", "load_state_dict")
"""Methods that a signal with an `update` also needs."""


def _added(name: str, settings: RewardSignalSettings, setup: SignalSetup) -> RewardSignal:
    """Builds a user's signal by calling what names it with settings and setup.

    One that is named as ``module:callable`` gets that as its name, which its class need not know.

    Raises:
        UserError: The signal cannot be imported or created, or is no reward signal.
    """
    factory = load("reward_signals", name, REWARD_SIGNALS)
    signal = plugins.make("reward_signals", name, lambda: factory(settings, setup))
    if ":" in name:
        plugins.make("reward_signals", name, lambda: setattr(signal, "name", name))
    fault = plugins.make("reward_signals", name, lambda: _fault(name, signal))
    if fault:
        raise UserError(
            ExitCode.RUN_FILE,
            f"reward_signals names {name!r}, but the object it creates {fault}: see RewardSignal in "
            "learner/training/rewards/signals.py",
        )
    checked: RewardSignal = signal
    return checked


def _fault(name: str, signal: Any) -> str:
    """Returns why an object cannot be the signal of a name; empty if it can.

    The name must be that of the run file, because statistics and saved states use it, and names in the file are unique.
    """
    needed = (*_NEEDED, *_NEEDED_TO_LEARN) if hasattr(signal, "update") else _NEEDED
    missing = [attribute for attribute in needed if not hasattr(signal, attribute)]
    if missing:
        return f"lacks {', '.join(missing)}"
    if signal.name != name:
        return f"has the name {str(signal.name)[:_MAX_SHOWN]!r}, not the name in the run file"
    gamma = signal.gamma
    if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not 0.0 <= gamma <= 1.0:
        return f"has a gamma of {str(gamma)[:_MAX_SHOWN]!r}, not a number from 0 to 1"
    unclear = [each for each in ("ignores_ends", "needs_observations") if not isinstance(getattr(signal, each), bool)]
    if unclear:
        return f"has {' and '.join(unclear)} that are neither True nor False"
    return "" if callable(signal.evaluate) else "has an evaluate that cannot be called"


class SignalSet:
    """The K reward signals of a behavior, in the order of the value heads.

    Args:
        signals: The signals, at least one.
        device: Device of the experience.

    Attributes:
        names: Names in the run file.
        gamma: ``[K]`` float64, discount factors.
        ignores_ends: ``[K]`` bool, whether the value after a terminal step counts.
        needs_observations: Whether any signal uses more than the environment's reward.
        learned, learns: The signals with a network, and whether there are any.
    """

    def __init__(self, signals: Sequence[RewardSignal], device: torch.device) -> None:
        self._signals = tuple(signals)
        self.learned = tuple(signal for signal in signals if isinstance(signal, LearnedSignal))
        self.names = tuple(signal.name for signal in signals)
        self.gamma = torch.tensor([signal.gamma for signal in signals], dtype=torch.float64, device=device)
        self.ignores_ends = torch.tensor([signal.ignores_ends for signal in signals], device=device)
        self.needs_observations = any(signal.needs_observations for signal in signals)
        self.learns = bool(self.learned)
        self._may_fail = any(name != EXTRINSIC for name in self.names)  # extrinsic rewards are checked on arrival
        self._faulty = torch.zeros(len(self.names), dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return len(self._signals)

    @torch.no_grad()
    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards, ``[B, K]`` float64.

        Raises:
            UserError: A signal of a package returns something else.
        """
        rewards = torch.stack([_rewards(signal, transitions) for signal in self._signals], dim=1)
        if self._may_fail:
            self._faulty |= ~rewards.isfinite().all(0)
        return rewards

    def take_faulty(self) -> tuple[str, ...]:
        """Returns the signals whose rewards were not finite since the last call; waits for the device."""
        found = tuple(name for name, faulty in zip(self.names, self._faulty.tolist(), strict=True) if faulty)
        self._faulty.zero_()
        return found

    def update(self, transitions: Transitions) -> None:
        """Takes one gradient step in every learned signal."""
        for signal in self.learned:
            signal.update(transitions)

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all parameters that the signals have learned are finite."""
        found = torch.ones((), dtype=torch.bool, device=self.gamma.device)
        for signal in self.learned:
            found = found & signal.is_finite()
        return found

    def statistics(self) -> dict[str, float]:
        """Returns the signals' statistics of the steps since the last call."""
        found: dict[str, float] = {}
        for signal in self.learned:
            found.update(signal.statistics())
        return found

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the state of every learned signal, by name."""
        return {signal.name: signal.state_dict() for signal in self.learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a saved state.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The state does not fit.
        """
        for signal in self.learned:
            if signal.name not in state:
                raise ValueError(f"reward signal {signal.name} is missing from the saved state")
            signal.load_state_dict(state[signal.name])


def _rewards(signal: RewardSignal, transitions: Transitions) -> Tensor:
    """Computes the rewards ``[B]`` float64 of one signal.

    Raises:
        UserError: The signal returns something else.
    """
    found: Any = signal.evaluate(transitions)
    if not isinstance(found, Tensor) or found.shape != transitions.reward.shape:
        shown = f"a tensor {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise UserError(
            ExitCode.TRAINER_FAILED,
            f"reward signal {signal.name!r} returned {shown} for {len(transitions.reward)} steps: its evaluate must "
            f"return a tensor [{len(transitions.reward)}], one reward per step; correct its code",
        )
    return found.double()
