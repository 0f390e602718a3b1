"""The companions of one behavior: builds them, gives them experience and turns, and saves them with its trainer."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import structlog
import torch
from rollcast.specs import BehaviorSpec
from torch import nn

from learner.link.to_trainers import Declared, Experience
from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.stats import StatsReporter
from learner.shared.settings.extensions import COMPANIONS, load
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.layout import segments_of
from learner.training.buffers.replay import replay_row_bytes
from learner.training.networks.named import NamedModels
from learner.training.trainers.companions.data import DataUser, data_sizes
from learner.training.trainers.companions.trainer import CompanionContext, CompanionTrainer
from learner.training.trainers.intake import for_training

log = structlog.get_logger(__name__)

SAVED_SECONDS: Final = 0.5
"""Time of which a companion may save up its share: about that between two turns of an idle run. The policy's trainer waits
for it at most that share of it, and the rest of a gradient step."""


@dataclass(slots=True)
class _Turns:
    """The turns of one companion.

    Attributes:
        companion: The companion.
        seed: Seed of what it draws from torch's default generator.
        steps: The training that has begun; None between two.
        free_seconds: Time that it may train; negative if its last turn took longer.
        at: When this time was counted last.
    """

    companion: CompanionTrainer
    seed: int
    steps: Iterator[None] | None = None
    free_seconds: float = 0.0
    at: float | None = None


class Companions:
    """The companions of one behavior. Use it in the trainers' thread.

    Args:
        models: Their models.
        data: Their data buffers by name.
        companions: The companions, sorted by name.
        seed: Seed of what they draw from torch's default generator.
        clock: Returns monotonic seconds; None without a clock: each training then runs as a whole, so that the result
            depends on the experience alone.
    """

    def __init__(
        self,
        models: NamedModels | None = None,
        data: Mapping[str, DataUser] | None = None,
        companions: Sequence[CompanionTrainer] = (),
        *,
        seed: int = 0,
        clock: Callable[[], float] | None = time.monotonic,
    ) -> None:
        self.models = models or NamedModels()
        self._data = data or {}
        self._turns = {each.context.name: _Turns(each, _seed(seed, each.context.name)) for each in companions}
        self._clock = clock
        self._has_ended = self._has_new = False

    def add(self, item: Experience) -> None:
        """Copies the trainable segments of a chunk into the data buffers."""
        if self._has_ended or not self._data or not item.chunk.segments:
            return
        parts, chosen = segments_of(item.chunk), np.flatnonzero(for_training(item.chunk))
        for data in self._data.values():
            data.add(item.chunk, parts, chosen)
        self._has_new = True

    def take_turns(self) -> None:
        """Lets each companion train, if it can, for its share of the time since its last turn."""
        for turns in self._turns.values():
            if self._clock is not None:
                self._train_for_a_slice(turns, self._clock)
            elif self._has_new:  # once for each round, whatever the number of turns
                with seeded(turns.seed + turns.companion.trainings, turns.companion.context.device):
                    self._train(turns, lambda: False)
        self._has_new = False

    def _train_for_a_slice(self, turns: _Turns, clock: Callable[[], float]) -> None:
        now, share = clock(), turns.companion.settings.max_share
        earned = 0.0 if turns.at is None else share * (now - turns.at)
        turns.at, turns.free_seconds = now, min(share * SAVED_SECONDS, turns.free_seconds + earned)
        if turns.free_seconds > 0:
            end = now + turns.free_seconds
            self._train(turns, lambda: clock() >= end)
            turns.free_seconds -= clock() - now

    def _train(self, turns: _Turns, is_over: Callable[[], bool]) -> None:
        """Begins or continues a training, until it is complete or the time is over."""
        if turns.steps is None:
            if not turns.companion.is_trainable():
                return
            turns.steps = turns.companion.training()
        for _ in turns.steps:
            if is_over():
                return
        turns.steps = None

    def clear_data(self) -> None:
        """Empties the data buffers, which saved states do not have: a run that continues then has what a restart has."""
        for data in self._data.values():
            if len(data):
                data.clear()

    def end(self) -> None:
        """Ends trainings, and frees the data."""
        self._has_ended = True
        for turns in self._turns.values():
            turns.steps = None  # closes the generator, which calls teardown
        for data in self._data.values():
            data.release()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of companions and data buffers, without the data; empty without companions."""
        if not self._turns:
            return {}
        return {
            "data": {name: data.state_dict() for name, data in self._data.items()},
            "trainers": {name: turns.companion.state_dict() for name, turns in self._turns.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state; companions and data buffers that it lacks begin anew.

        Raises:
            ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError: The state does not fit.
        """
        if not self._turns:
            return
        saved_data, saved = (_map(state, key) if state else {} for key in ("data", "trainers"))
        for name, data in self._data.items():
            if name in saved_data:
                data.load_state_dict(saved_data[name])
        for name, turns in self._turns.items():
            if name in saved:
                turns.companion.load_state_dict(saved[name])
            else:
                log.warning("companion_begins", companion=name, reason="the saved state does not have it")


def build_companions(
    behavior: Declared, stats: StatsReporter, device: torch.device, seed: int, *, in_rounds: bool
) -> Companions:
    """Builds the companions of a behavior that the run file names.

    Args:
        behavior: The behavior.
        stats: Receives statistics.
        device: Device of models and data.
        seed: Seed of weights and draws.
        in_rounds: Whether the run is in lock-step, where no clock decides.

    Raises:
        UserError: A companion cannot be imported or created, or a data buffer has no room.
    """
    spec, settings = behavior.spec, behavior.settings
    sizes = data_sizes(spec, settings)
    data = {name: DataUser(spec, size, device, _seed(seed, name)) for name, size in sizes.items()}
    models = NamedModels()
    companions = _made(settings, CompanionContext("", spec, device, models, data, stats), seed)
    for each in companions:
        name = each.context.name
        each.optimizers = plugins.make(f"companions.{name}", name, each.create_optimizers)
    return Companions(models, data, companions, seed=seed, clock=None if in_rounds else time.monotonic)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Gives torch's default generators a seed for the time of the block: layers draw their weights from them."""
    if device.type == "meta":  # nothing is drawn there, and another thread may draw
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def companion_networks(spec: BehaviorSpec, settings: TrainerSettings) -> list[nn.Module]:
    """Builds the models of a behavior's companions on the meta device, where nothing is allocated.

    Raises:
        UserError: A companion cannot be imported, or cannot create its models for the behavior.
    """
    models = NamedModels()
    context = CompanionContext("", spec, torch.device("meta"), models, {}, StatsReporter(spec.name))
    with torch.device("meta"):
        _made(settings, context, 0)
    return models.all()


def companion_data_bytes(spec: BehaviorSpec, settings: TrainerSettings) -> int:
    """Returns the bytes of a behavior's data buffers.

    Raises:
        UserError: One is too small.
    """
    return sum(size.capacity_rows for size in data_sizes(spec, settings).values()) * replay_row_bytes(spec)


def _made(settings: TrainerSettings, context: CompanionContext, seed: int) -> list[CompanionTrainer]:
    found: list[CompanionTrainer] = []
    for name, each in settings.companions.active().items():
        place = f"companions.{name}"
        factory = load(place, name, COMPANIONS)
        with seeded(_seed(seed, name), context.device):
            companion = plugins.make(place, name, lambda: factory(each, replace(context, name=name)))  # noqa: B023 - called at once
            if not isinstance(companion, CompanionTrainer):
                raise UserError(
                    ExitCode.RUN_FILE,
                    f"{place} names {name!r}, which makes {type(companion).__name__}: it must be a CompanionTrainer, see "
                    "learner/training/trainers/companions/trainer.py",
                )
            plugins.make(place, name, companion.add_models)
        found.append(companion)
    return found


def _map(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = state[key]
    if not isinstance(found, Mapping):
        raise TypeError(f"{key} is a {type(found).__name__}, but must be a map")
    return found


def _seed(seed: int, name: str) -> int:
    return (seed + zlib.crc32(name.encode())) % 2**63
