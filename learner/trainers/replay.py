"""Trainers that learn from replay memory: steps come in, updates pay for them, and actors wait for what is owed."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog
import torch

from learner.buffers.replay import ReplayMemory, replay_row_bytes, replay_size
from learner.buffers.replay_file import FILE_NAME, OTHER_FILE_NAME, BadReplay, read_replay, write_replay
from learner.common.saved_values import count, number
from learner.ingest.behaviors import NOT_TRAINING
from learner.link.experience import Pace, QueuedChunk
from learner.observe.metrics.behaviors import ReplayNumbers
from learner.settings.hyperparameters import ReplayHyperparameters
from learner.trainers.base import RingNumbers, TrainerContext
from learner.trainers.intake import ReplayIntake, Taken
from learner.trainers.rl import RLTrainer

log = structlog.get_logger(__name__)


class UpdateDebt:
    """Steps come in, updates pay for them.

    The first steps owe nothing: they only fill the memory, so that the first updates do not draw the same few again and
    again. After a restart without the memory this begins anew.

    Args:
        steps_per_update: steps that each update pays for.
        free_steps: how many first steps owe nothing.

    Attributes:
        free_steps: how many more steps will owe nothing.
    """

    def __init__(self, steps_per_update: float, free_steps: int) -> None:
        self.free_steps = free_steps
        self._steps_per_update = steps_per_update
        self._before = 0.0  # unpaid when counting began, in steps
        self._steps = 0
        self._updates = 0

    @property
    def unpaid_steps(self) -> float:
        """Steps that owe and are not paid for."""
        return max(0.0, self._before + (self._steps - self._updates * self._steps_per_update))

    @property
    def owed(self) -> int:
        """Whole updates that are owed."""
        # A step owes 1 / steps_per_update; what rounding takes from a whole number is given back.
        return int(self.unpaid_steps / self._steps_per_update + 1e-9)

    def add(self, steps: int) -> None:
        """Takes in steps."""
        free = min(steps, self.free_steps)
        self.free_steps -= free
        self._steps += steps - free

    def pay(self, updates: int = 1) -> None:
        """Pays with updates that are owed."""
        self._updates += updates

    def state_dict(self) -> dict[str, Any]:
        """Returns what is unpaid; how full the memory is, only the memory knows."""
        return {"unpaid_steps": self.unpaid_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state.

        Raises:
            KeyError, TypeError, ValueError: it does not fit.
        """
        self._before, self._steps, self._updates = number(state, "unpaid_steps", least=0.0), 0, 0


PUBLISH_UPDATES: Final = 50
PUBLISH_SECONDS: Final = 0.02
"""The next version is broadcast after so many updates or so much time, whichever comes first. Each update is a version;
a broadcast costs the learner and every actor about as much as an update does."""


class ReplayTrainer(RLTrainer):
    """Keeps steps in a replay memory and owes updates for them; one turn pays some.

    A step counts as trained once it is in the memory. Nothing is dropped for its age. Instead, a chunk is taken in only
    while no more than ``max_update_debt`` updates are owed, and what is owed counts as unsettled, so that actors get no
    credit and wait: a policy is not left behind by the steps it has not learned from.

    In lock-step a round is taken in whole, and all updates that are owed then are one turn, which no clock ends. A round
    that owes none brings a version, too: actors would draw the same random numbers again under the same one.

    Args:
        context: everything from outside.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    def __init__(self, context: TrainerContext) -> None:
        self.hyperparameters = self.own_hyperparameters(context, ReplayHyperparameters)
        self._draws = torch.Generator(context.device).manual_seed(context.seed)
        super().__init__(context)
        behavior, hyper = context.behavior, self.hyperparameters
        memory_size = behavior.memory_size
        # Sequences are drawn by the host, which must know their lengths.
        self._choices = torch.Generator().manual_seed(context.seed) if memory_size else self._draws
        size = replay_size(
            replay_row_bytes(behavior.spec, memory_size),
            buffer_size=hyper.buffer_size,
            time_horizon=self.trainer_settings.time_horizon,
        )
        self.memory = ReplayMemory(
            behavior.spec,
            size,
            context.device,
            self._choices,
            memory_size=memory_size,
            memory_stride=behavior.memory_stride,
        )
        self.intake = ReplayIntake(context.behavior.name, self.memory, context.ledger, context.generation)
        self.debt = UpdateDebt(hyper.steps_per_update, hyper.buffer_init_steps)
        self._needed_steps = min(hyper.batch_size, hyper.buffer_size)
        self._chunk_steps = self.trainer_settings.time_horizon  # of the newest chunk
        self._updates = 0  # of the present turn
        self._is_updated = False
        self._steps_at_update = 0
        self._stage_seconds = 0.0
        self._unpublished = 0  # updates
        self._published_at = -math.inf
        self._in_rounds = context.service.lockstep is not None
        self._files = [FILE_NAME, OTHER_FILE_NAME]  # the first is the next to be written
        self._free_steps = self.debt.free_steps  # of the state that was loaded

    @property
    def should_still_train(self) -> bool:
        """Whether more updates are to come; those that are owed at the last step are still made."""
        goes_on = self.get_step < self.get_max_steps or self.owed > 0
        return self.is_training and not self.context.reduce.any_agrees(not goes_on)

    @property
    def ring(self) -> RingNumbers:
        """Where its experience is."""
        return RingNumbers(self.intake.waiting_steps, self.memory.steps, self.memory.capacity_steps)

    @property
    def untrained_steps(self) -> int:
        """Steps that are not in the memory yet."""
        return self.intake.waiting_steps

    @property
    def owed(self) -> int:
        """Updates that can be made now; none before the memory has enough steps."""
        if self.debt.free_steps or self.memory.steps < self._needed_steps:
            return 0
        return self.debt.owed

    @property
    def max_update_debt(self) -> int:
        """Updates that may be owed when a chunk is taken in."""
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
        """Reports a turn; returns False if its result was not finite, and everything is as it was some updates before."""

    @abstractmethod
    def _note_experience(self, taken: Taken) -> None:
        """Looks at steps that have just entered the memory."""

    def collect(self) -> bool:
        """Takes what waits in the queues, as far as the debt allows, and tells the service what is held."""
        before = self.get_step
        is_busy = super().collect()
        has_taken = self._take()
        is_busy = has_taken or is_busy
        if is_busy:
            self._set_pace()
            self._cadence(before)
            self.tally.note_progress(self.get_step / self.get_max_steps)
        if has_taken and self._in_rounds and not self.owed:
            self._version += 1
            self._publish()
        self._publish_if_due()
        return is_busy

    def _process_trajectory(self, item: QueuedChunk) -> None:
        self._metrics.queue_wait.observe(max(0.0, time.monotonic() - item.received_at))
        self.tally.add(item.chunk)
        self._note_group_rewards(item)
        if self.is_training:
            self.intake.receive(item)
        else:
            self.intake.drop(NOT_TRAINING, item.chunk.rows)

    def _take(self) -> bool:
        """Moves chunks into the memory while the debt allows; returns whether there was one."""
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

    def setup(self) -> None:
        """Measures."""
        self._metrics.stage.observe(self._stage_seconds)
        self._stage_seconds = 0.0
        self._clock.begin_update()

    def train(self) -> None:
        """Pays for steps, until nothing is owed or the next version is due."""
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
                if time.monotonic() >= end:
                    break
            self._is_updated = self._end_updates()
        self.debt.pay(self._updates)
        self._clock.end_update(self._steps_trained - self._steps_at_update)
        self._steps_at_update = self._steps_trained

    def sync_models(self) -> None:
        """Counts the updates, each a version, and broadcasts the newest if it is time; or none, if not finite."""
        self._show_memory()
        if not self._is_updated:
            self._give_update_up(0)
            # What it went back to was published under another number, if at all: it is a version of its own.
            self._version += 1
            self._unpublished += 1
            self._publish_if_due()
            return
        self._failed_updates = 0
        self._version += self._updates
        self._optimizer_steps += self._updates
        self._unpublished += self._updates
        self.tally.note_update()
        self._metrics.note_update(self._updates)
        self._publish_if_due()

    def teardown(self) -> None:
        """Lets the service know what is still owed."""
        self._set_pace()

    def _publish_if_due(self) -> None:
        is_late = time.monotonic() - self._published_at >= PUBLISH_SECONDS
        if is_late or self._in_rounds or self._unpublished >= PUBLISH_UPDATES:
            self.publish_present()

    def publish_present(self) -> None:
        """Broadcasts the newest version, if actors do not have it."""
        if self._unpublished:
            now = time.monotonic()
            with self._metrics.publish.time():
                self._publish()
            self._unpublished, self._published_at = 0, now

    def finish(self) -> None:
        """Ends training for good: what waits leaves the books as dropped, and the last version is broadcast.

        The replay memory is for the behaviors that train on, unless it is to be saved with the last checkpoint.
        """
        self.intake.clear(NOT_TRAINING)
        if not self.hyperparameters.save_replay_buffer:
            self.memory.release()
        self._set_pace()
        self.publish_present()

    def _set_pace(self) -> None:
        """Tells the service what waits, and that steps whose updates are owed are not settled either."""
        owing = math.ceil(self.debt.unpaid_steps) if self.owed else 0
        limit = self.hyperparameters.max_update_debt
        allowed = self._chunk_steps if limit is None else math.ceil(limit * self.hyperparameters.steps_per_update)
        self.queue.set_pace(Pace(held_steps=self.intake.waiting_steps + owing, ahead_limit_steps=allowed))

    def _show_memory(self) -> None:
        counters = self.memory.counters
        self._metrics.show_replay(
            ReplayNumbers(
                self.memory.steps, self.owed, counters.drawn, counters.evicted, int(self.memory.evicted_undrawn)
            )
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on but the memory, which `save_experience` writes."""
        return {**super().state_dict(), "debt": self.debt.state_dict(), "free_steps": self.debt.free_steps}

    def _load_counts(self, state: Mapping[str, Any]) -> None:
        """Takes over how far training was; the memory is empty, and fills as at the start of a run."""
        super()._load_counts(state)
        self.debt.load_state_dict(state["debt"])
        if self.debt.unpaid_steps > self._steps_trained:
            raise ValueError(
                f"unpaid_steps are {self.debt.unpaid_steps:g}, more than the {self._steps_trained} there were"
            )
        self._free_steps = count({"free_steps": 0, **state}, "free_steps")
        self._steps_at_update = self._steps_trained

    def save_experience(self, folder: Path) -> None:
        """Writes the memory, if the run file says ``save_replay_buffer``; in lock-step into two files by turns.

        Raises:
            WriteFailed: it cannot be written; the file that was there is untouched.
        """
        if not self.hyperparameters.save_replay_buffer or not self.memory.steps:
            return
        write_replay(self.memory, folder / self._files[0], moment=self._steps_trained)
        if self._in_rounds:
            self._files.reverse()

    def load_experience(self, folder: Path) -> str:
        """Reads the memory, if the run file says ``save_replay_buffer``; one that cannot be read costs its steps only.

        In lock-step it must be the memory of the moment at which the state was saved.

        Returns:
            Why the memory is not what it was, if it is not.
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
            action="training goes on with an empty replay memory, which fills as at the start of a run",
        )
        return "; ".join(faults)

    def _note_loaded(self, name: str) -> None:
        """Takes up the count of first steps that owe nothing, and spares the file that was read."""
        if self._in_rounds:
            self.debt.free_steps = self._free_steps
            self._files.sort(key=lambda file: file == name)
        else:
            self.debt.free_steps = max(0, self.debt.free_steps - self.memory.steps)
        log.info("replay_loaded", behavior=self.brain_name, steps=self.memory.steps)
