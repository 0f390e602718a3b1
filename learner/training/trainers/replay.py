"""Trainers that learn from replay memory: steps make updates due, and actors wait until enough of them are done."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog
import torch

from learner.link.to_front import NOT_TRAINING, Pace
from learner.shared.saved_values import count, number
from learner.shared.settings.hyperparameters import ReplayHyperparameters
from learner.training.buffers.replay import ReplayMemory, replay_row_bytes, replay_size
from learner.training.buffers.replay_file import FILE_NAME, OTHER_FILE_NAME, BadReplay, read_replay, write_replay
from learner.training.trainers.base import RingNumbers, TrainerContext
from learner.training.trainers.intake import ReplayIntake, Taken
from learner.training.trainers.rl import RLTrainer

log = structlog.get_logger(__name__)


class UpdateDebt:
    """Tracks how many updates are due for the steps received.

    The first steps make no updates due: they fill the memory, so that the first updates do not draw the same few steps
    repeatedly. After a restart without the memory, this applies again.

    Args:
        steps_per_update: Steps matched by one update.
        free_steps: Number of first steps that make no update due.

    Attributes:
        free_steps: Number of first steps that make no update due.
    """

    def __init__(self, steps_per_update: float, free_steps: int) -> None:
        self.free_steps = free_steps
        self._steps_per_update = steps_per_update
        self._before = 0.0  # unmatched steps when counting began
        self._steps = 0
        self._updates = 0

    @property
    def unpaid_steps(self) -> float:
        """Environment steps not yet matched by an update."""
        return max(0.0, self._before + (self._steps - self._updates * self._steps_per_update))

    @property
    def owed(self) -> int:
        """Whole updates that are due."""
        # A step makes 1 / steps_per_update of an update due; the summand keeps rounding from losing a whole update.
        return int(self.unpaid_steps / self._steps_per_update + 1e-9)

    def add(self, steps: int) -> None:
        """Adds received steps."""
        free = min(steps, self.free_steps)
        self.free_steps -= free
        self._steps += steps - free

    def pay(self, updates: int = 1) -> None:
        """Subtracts completed updates."""
        self._updates += updates

    def state_dict(self) -> dict[str, Any]:
        """Returns the unmatched steps; only the memory knows how full it is."""
        return {"unpaid_steps": self.unpaid_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state.

        Raises:
            KeyError, TypeError, ValueError: The state does not fit.
        """
        self._before, self._steps, self._updates = number(state, "unpaid_steps", least=0.0), 0, 0


_CHOICES_SEED: Final = 0x63686F69
"""Added to the seed of draws on the host: with the seed of those on a CPU device, both would be the same numbers. Only
the lower 32 bits of a seed count there."""
PUBLISH_UPDATES: Final = 50
PUBLISH_SECONDS: Final = 0.02
"""Seconds after which the next version is broadcast, even with fewer than `PUBLISH_UPDATES` new updates. Each update is
a version; a broadcast costs the learner and every actor about as much as an update."""
_TURN_UPDATES: Final = 4
"""Least number of updates in a turn, if so many are owed: large networks take most of `PUBLISH_SECONDS` for one."""


class ReplayTrainer(RLTrainer):
    """Keeps steps in a replay memory and owes updates for them; one turn does some of these updates.

    A step counts as trained once it is in the memory. No step is dropped for its age. Instead, a chunk is taken only
    while at most ``max_update_debt`` updates are owed. Steps whose updates are owed count as unsettled, so that actors
    get no credit and wait for the policy to learn from earlier steps.

    In lock-step a round is taken as a whole, and all updates then owed make one turn without a time limit. A round that
    owes no update still results in a version, because actors would draw the same random numbers again under the same
    version.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    intake: ReplayIntake

    def __init__(self, context: TrainerContext) -> None:
        self.hyperparameters = self.own_hyperparameters(context, ReplayHyperparameters)
        self._draws = torch.Generator(context.device).manual_seed(context.seed)
        super().__init__(context)
        behavior, hyper = context.behavior, self.hyperparameters
        memory_size = behavior.memory_size
        # The host draws sequences, because it must know their lengths, and beginnings of episodes.
        self._choices = torch.Generator().manual_seed(context.seed if memory_size else context.seed + _CHOICES_SEED)
        size = replay_size(
            replay_row_bytes(behavior.spec, memory_size),
            buffer_size=hyper.buffer_size,
            time_horizon=self.trainer_settings.time_horizon,
        )
        self.memory = ReplayMemory(
            behavior.spec,
            size,
            context.device,
            self._choices if memory_size else self._draws,
            memory_size=memory_size,
            memory_stride=behavior.memory_stride,
            burn_in=hyper.burn_in,
        )
        self.intake = ReplayIntake(self.memory, context.outcomes, context.generation)
        self.debt = UpdateDebt(hyper.steps_per_update, hyper.buffer_init_steps)
        self._needed_steps = min(hyper.batch_size, hyper.buffer_size)
        self._chunk_steps = self.trainer_settings.time_horizon  # of the newest chunk
        self._updates = 0  # of the current turn
        self._is_updated = False
        self._steps_at_update = 0
        self._unpublished = 0  # updates
        self._published_at = -math.inf
        self._in_rounds = context.service.lockstep is not None
        self._files = [FILE_NAME, OTHER_FILE_NAME]  # the first is written next
        self._free_steps = self.debt.free_steps  # of the loaded state

    def settings_changed(self) -> None:
        """Reads the current hyperparameters."""
        self.hyperparameters = self.own_hyperparameters(self.context, ReplayHyperparameters)

    @property
    def should_still_train(self) -> bool:
        """Returns whether more updates follow; those owed at the last step are still made."""
        return self.is_training and (self.get_step < self.get_max_steps or self.owed > 0)

    @property
    def ring(self) -> RingNumbers:
        """Counts of the trainer's experience."""
        return RingNumbers(self.intake.waiting_steps, self.memory.steps, self.memory.capacity_steps)

    @property
    def untrained_steps(self) -> int:
        """Steps that are not in the memory yet."""
        return self.intake.waiting_steps

    @property
    def owed(self) -> int:
        """Updates that can be made now; 0 before the memory has enough steps."""
        if self.debt.free_steps or self.memory.steps < self._needed_steps:
            return 0
        return self.debt.owed

    @property
    def acts_uniformly(self) -> bool:
        """True in the first ``buffer_init_steps`` steps if ``buffer_init_actions`` is ``uniform``."""
        hyper = self.hyperparameters
        return hyper.buffer_init_actions == "uniform" and self._steps_trained < hyper.buffer_init_steps

    @property
    def max_update_debt(self) -> int:
        """Most updates that may be owed when a chunk is taken."""
        limit = self.hyperparameters.max_update_debt
        return int(self._chunk_steps / self.hyperparameters.steps_per_update) if limit is None else limit

    @abstractmethod
    def _begin_updates(self) -> None:
        """Prepares a turn."""

    @abstractmethod
    def _update_once(self) -> None:
        """Takes one gradient step on a minibatch of `memory`; reads nothing back from the device."""

    @abstractmethod
    def _end_updates(self) -> bool:
        """Reports a turn; returns False if its result was not finite and an earlier state was restored."""

    @abstractmethod
    def _note_experience(self, taken: Taken) -> None:
        """Processes steps that have just entered the memory."""

    def collect(self) -> bool:
        """Takes chunks that wait in the queue, as far as the debt allows."""
        before = self.get_step
        is_busy = super().collect()
        has_taken = self._take()
        is_busy = has_taken or is_busy
        if is_busy:
            self._cadence(before)
            self.episode_statistics.note_progress(self.get_step / self.get_max_steps)
        if has_taken and self._in_rounds and not self.owed:
            self._version += 1
            self._publish()
        self._publish_if_due()
        return is_busy

    def _take(self) -> bool:
        """Moves chunks into the memory while the debt allows; returns whether any was moved."""
        began = time.monotonic()
        is_busy = False
        while self.get_step < self.get_max_steps and (self._in_rounds or self.owed <= self.max_update_debt):
            taken = self.intake.take()
            if taken is None:
                break
            is_busy = True
            self._chunk_steps = taken.steps
            self._steps_trained += taken.steps
            self.debt.add(taken.steps)
            self._note_experience(taken)
        if is_busy:
            self._stage_seconds += time.monotonic() - began
            self._show_memory()
        return is_busy

    def is_trainable(self) -> bool:
        """Returns whether an update is owed."""
        return self.owed > 0

    def train(self) -> None:
        """Performs owed updates until none is owed or the next version is due."""
        limit, end = self.owed, math.inf
        if not self._in_rounds:
            limit = min(limit, max(1, PUBLISH_UPDATES - self._unpublished))
            end = time.monotonic() + PUBLISH_SECONDS
        self._updates = 0
        with self._metrics.optimize.time():
            self._begin_updates()
            while self._updates < limit:
                self._update_once()
                self._updates += 1
                if self._updates >= _TURN_UPDATES and time.monotonic() >= end:
                    break
            self._is_updated = self._end_updates()
        self.debt.pay(self._updates)
        self._clock.end_update(self._steps_trained - self._steps_at_update)
        self._steps_at_update = self._steps_trained

    def sync_models(self) -> None:
        """Counts the updates, each a version, and broadcasts the newest if due; counts none if not finite."""
        self._show_memory()
        if not self._is_updated:
            self._give_update_up(0)
            # The restored state was published under another number, if at all, so it becomes a new version.
            self._version += 1
            self._unpublished += 1
            self._publish_if_due()
            return
        self._failed_updates = 0
        self._version += self._updates
        self._optimizer_steps += self._updates
        self._unpublished += self._updates
        self.episode_statistics.note_update()
        self.note_update(self._updates)
        self._publish_if_due()

    def teardown(self) -> None:
        """Does nothing."""

    def _publish_if_due(self) -> None:
        is_late = time.monotonic() - self._published_at >= PUBLISH_SECONDS
        if is_late or self._in_rounds or self._unpublished >= PUBLISH_UPDATES:
            self.publish_present()

    def publish_present(self, *, keep: bool = False) -> None:
        """Broadcasts the newest version if actors do not have it.

        Args:
            keep: Keeps this version available until its behavior is released, even after newer versions.
        """
        if not self._unpublished:
            super().publish_present(keep=keep)
            return
        now = time.monotonic()
        with self._metrics.publish.time():
            self._publish(keep=keep)
        self._unpublished, self._published_at = 0, now

    def finish(self) -> None:
        """Ends training; waiting steps are recorded as dropped, and the last version is broadcast.

        The replay memory becomes available to the remaining behaviors, unless it is saved with the last checkpoint.
        """
        self.intake.clear(NOT_TRAINING)
        if not self.hyperparameters.save_replay_buffer:
            self.memory.release()
        self.publish_present()

    def pace(self) -> Pace:
        """Returns how far ahead actors may run; steps whose updates are owed count as unsettled."""
        owing = math.ceil(self.debt.unpaid_steps) if self.owed else 0
        limit = self.hyperparameters.max_update_debt
        allowed = self._chunk_steps if limit is None else math.ceil(limit * self.hyperparameters.steps_per_update)
        return Pace(owed_steps=owing, ahead_limit_steps=allowed)

    def _show_memory(self) -> None:
        counters = self.memory.counters
        self.numbers.update(
            replay_steps=self.memory.steps,
            owed_updates=self.owed,
            replay_drawn_steps=counters.drawn,
            replay_evicted_steps=counters.evicted,
            replay_evicted_undrawn_steps=int(self.memory.evicted_undrawn),
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on except the memory, which `save_experience` writes."""
        return {**super().state_dict(), "debt": self.debt.state_dict(), "free_steps": self.debt.free_steps}

    def _load_counts(self, state: Mapping[str, Any]) -> None:
        """Loads the training counts; the memory is empty and fills as at the start of a run."""
        super()._load_counts(state)
        self.debt.load_state_dict(state["debt"])
        if self.debt.unpaid_steps > self._steps_trained:
            raise ValueError(
                f"unpaid_steps is {self.debt.unpaid_steps:g}, more than the {self._steps_trained} trained steps"
            )
        self._free_steps = count(state, "free_steps")
        self._steps_at_update = self._steps_trained

    def save_experience(self, folder: Path) -> None:
        """Writes the memory if the run file sets ``save_replay_buffer``; in lock-step alternates between two files.

        Raises:
            WriteFailed: The memory cannot be written; the earlier file is unchanged.
        """
        if not self.hyperparameters.save_replay_buffer or not self.memory.steps:
            return
        write_replay(self.memory, folder / self._files[0], moment=self._steps_trained)
        if self._in_rounds:
            self._files.reverse()

    def load_experience(self, folder: Path) -> str:
        """Reads the memory if the run file sets ``save_replay_buffer``; an unreadable file costs only its steps.

        In lock-step the memory must be of the moment at which the state was saved.

        Returns:
            Reason why the memory differs from the saved one; empty if it does not.
        """
        if not self.hyperparameters.save_replay_buffer:
            return "hyperparameters.save_replay_buffer is false" if self._steps_trained else ""
        if self._in_rounds and not self._steps_trained:
            return ""
        faults: list[str] = []
        for name in self._files if self._in_rounds else self._files[:1]:
            try:
                read_replay(self.memory, folder / name, moment=self._steps_trained if self._in_rounds else None)
            except BadReplay as error:
                faults.append(str(error))
                continue
            self._note_loaded(name)
            return ""
        log.warning(
            "replay_not_loaded",
            behavior=self.brain_name,
            reason="; ".join(faults),
            action="training continues with an empty replay memory, which fills as at the start of a run",
        )
        return "; ".join(faults)

    def _note_loaded(self, name: str) -> None:
        """Restores the count of first steps that owe no updates, and keeps the file that was read."""
        if self._in_rounds:
            self.debt.free_steps = self._free_steps
            self._files.sort(key=lambda file: file == name)
        else:
            self.debt.free_steps = max(0, self.debt.free_steps - self.memory.steps)
        log.info("replay_loaded", behavior=self.brain_name, steps=self.memory.steps)
