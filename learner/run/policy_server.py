"""Serves policies that nothing learns from: for evaluations of a finished run, and for ``--inference``.

The same service, queues and trainers as in training, but nothing is updated and nothing is written into a run folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
from google.protobuf.message import DecodeError
from rollcast.errors import NothingToSave, WireError
from rollcast.v1 import policy_pb2

from learner.common.exits import ExitCode, UserError
from learner.evaluation.frozen_trainer import FrozenTrainer
from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.link.evaluation import EvaluationSink
from learner.observe.address import BoundAddresses
from learner.observe.stats import StatsReporter
from learner.observe.view import RunState
from learner.run.base import BaseRun
from learner.run.operator_signals import OperatorSignals
from learner.run.setup import with_port
from learner.run.stopping import Stop
from learner.service.server import LearnerServer
from learner.settings.options import RunOptions
from learner.trainers import registry
from learner.trainers.base import Trainer
from learner.trainers.loop import TrainerLoop

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 0.05
_JOIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What is acted with, and how.

    Attributes:
        options: the run file.
        run_id: what actors are told.
        generation: what actors are told.
        seed: environments' seeds follow from it.
        load: gives a trainer the state that acts; raises a UserError where there is none.
        is_deterministic: the mode of the distribution acts; None leaves it to the run file.
        task: what actors are asked for until they are ordered something.
        has_site: whether the status page is served.
        falls_back: whether it takes a free port if its own is in use.
        folder: where the site keeps the operator's token.
        behaviors_table: what the behaviors of a saved run see and do: actors must have the same. None takes what the
            first actors have.
    """

    options: RunOptions
    run_id: str
    generation: int
    seed: int
    load: Callable[[Trainer], None]
    task: policy_pb2.BehaviorAssignment
    is_deterministic: bool | None = None
    has_site: bool = False
    falls_back: bool = False
    folder: Path = Path()
    behaviors_table: Mapping[str, Any] | None = None


class EpisodeScheduler(EvaluationSink, Protocol):
    """Decides who plays what, and takes the episodes; in the trainer thread."""

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Does what is due between two turns."""


class PolicyServer(BaseRun):
    """One time of acting without training. Make it in a running event loop.

    Args:
        config: what is acted with.
        direct: makes who decides what is played, from the parts that it needs.

    Raises:
        UserError: the device, the settings or the saved behaviors cannot be used.
    """

    def __init__(self, config: ServeConfig, direct: Callable[[PolicyServer], EpisodeScheduler]) -> None:
        super().__init__(config.options, run_id=config.run_id, generation=config.generation, seed=config.seed)
        self._config = config
        if config.behaviors_table is not None:
            _restore(self.behaviors, config.behaviors_table)
        self._scheduler = direct(self)
        self.loop = TrainerLoop(
            self.behaviors,
            self._build,
            on_failure=self._failed,
            after_turn=lambda: self._scheduler.after_turn(self.loop.trainers),
        )

    async def run(self, announce: Callable[[BoundAddresses], None]) -> Stop:
        """Acts until something asks for the end; returns why it ended.

        Args:
            announce: told where it listens.

        Raises:
            UserError: an address cannot be had.
        """
        config, control = self._config, self.make_control()
        server = self.make_server(control, config.task)
        with self.stopping.listening(), OperatorSignals(control).listening():
            await server.start()
            site = None
            if config.has_site:
                site = self.make_site(server, control, config.folder, falls_back=config.falls_back)
            try:
                page = ""
                if site is not None:
                    await site.start()
                    page = site.address
                self.address = with_port(self.service.address, server.port)
                control_address = with_port(self.service.control_address, server.control_port)
                announce(BoundAddresses(self.address, control_address, page))
                return await self._act(server)
            finally:
                await server.stop()
                if site is not None:
                    await site.stop(in_a_hurry=self.stopping.hurry.is_set())

    async def _act(self, server: LearnerServer) -> Stop:
        thread = threading.Thread(target=self.loop.run, name="trainers", daemon=True)
        thread.start()
        limit = self.service.max_wall_seconds
        while not self.stopping.asked.is_set():
            self.run_status.note_steps(is_paused=self.loop.is_paused)
            if limit is not None and self.run_status.uptime_seconds >= limit:
                self.stopping.ask("max_wall_seconds", final=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.asked.wait(), _WATCH_SECONDS)
        stop = self.stopping.stop or Stop("signal", final=False)
        log.info("stopping", reason=stop.reason, final=stop.final)
        self.loop.stop()
        await server.drain(
            final=stop.final,
            seconds=self.service.drain_seconds,
            hurry=self.stopping.hurry,
            has_failed=stop.error is not None,
        )
        await asyncio.to_thread(thread.join, _JOIN_SECONDS)
        return self.stopping.stop or stop

    def active_state(self) -> RunState:
        """Returns WAITING: nothing is trained."""
        return RunState.WAITING

    def save(self) -> Path:
        """Raises NothingToSave: nothing is trained."""
        raise NothingToSave("nothing is trained here, so there is nothing to save")

    def _build(self, behavior: Behavior) -> Trainer:
        """Makes a trainer that does not train, with the state that acts.

        Raises:
            UserError: its settings or the state do not fit.
        """
        config = self._config
        network = behavior.settings.network_settings
        is_deterministic = network.deterministic if config.is_deterministic is None else config.is_deterministic
        context = self.trainer_context(
            behavior, StatsReporter(behavior.name), self._scheduler, seed=self.seed, is_deterministic=is_deterministic
        )
        is_own = behavior.settings.trainer_type in registry.own_trainers()
        trainer = FrozenTrainer(context) if is_own else registry.build(context)  # of a package only it knows the policy
        config.load(trainer)
        return trainer

    def _failed(self, error: BaseException) -> None:
        """In the trainer thread, as the last thing it does."""
        self.run_status.last_error = f"{type(error).__name__}: {error}"
        self.stopping.ask_anywhere("trainer_failed", False, error)


def _restore(behaviors: BehaviorTable, saved: Mapping[str, Any]) -> None:
    """Makes the behaviors of a saved run known before actors come.

    Raises:
        UserError: the run file has one of them no more, or the saved run is damaged.
    """
    try:
        behaviors.load_state_dict(saved)
    except (AttributeError, DecodeError, KeyError, TypeError, ValueError, WireError) as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"the behaviors in the run state do not fit together ({type(error).__name__}: {error}); put back another "
            "copy of run_state.pt",
        ) from error
