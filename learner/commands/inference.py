"""``rollcast-learner serve --inference``: actors act with a run's policy, nothing is learned and nothing is saved."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from functools import partial

import structlog
from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2

from learner.checkpoints.choice import load_chosen
from learner.checkpoints.names import LAST
from learner.checkpoints.runfolder import RunFolder
from learner.checkpoints.store import CheckpointStore
from learner.common.exits import ExitCode
from learner.link.evaluation import EvaluationResult, Played
from learner.observe.address import BoundAddresses, remove_addresses
from learner.run.policy_server import PolicyServer, ServeConfig
from learner.run.setup import announce, choose_seed
from learner.settings.load import LoadedRun
from learner.trainers.base import Trainer
from learner.web.status_site import http_address_is_default

log = structlog.get_logger(__name__)


class Watching:
    """Tells now and then what actors reach; an `EpisodeScheduler` and `EvaluationSink` that decides nothing.

    Each time that as many episodes have ended as the mean return is over, they make one result in the metrics.

    Args:
        policy_server: serves the policies.
        window_episodes: how many.
        every_seconds: time between two lines of the log.
    """

    def __init__(self, policy_server: PolicyServer, *, window_episodes: int, every_seconds: float) -> None:
        self._policy_server = policy_server
        self._window_episodes = window_episodes
        self._every_seconds = every_seconds
        self._told_at = time.monotonic()
        self._newest: dict[str, deque[Played]] = {}
        self._counts: dict[str, int] = {}

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes a finished episode."""
        del team, assignment_id
        newest = self._newest.setdefault(behavior, deque(maxlen=self._window_episodes))
        newest.append(played)
        self._counts[behavior] = self._counts.get(behavior, 0) + 1
        if self._counts[behavior] % self._window_episodes == 0:
            returns = EvaluationResult.of(behavior, newest, step=0, version=0, is_deterministic=False).returns
            self._policy_server.metrics.behavior(behavior).note_evaluation(
                mean=returns.mean, std=returns.std, episodes=self._window_episodes, step=0
            )

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Says what was reached, if it is time."""
        now = time.monotonic()
        if now - self._told_at < self._every_seconds:
            return
        self._told_at = now
        for name, trainer in trainers.items():
            newest = self._newest.get(name)
            mean = round(sum(played.total for played in newest) / len(newest), 3) if newest else None
            log.info(
                "acting",
                behavior=name,
                step=trainer.get_step,
                episodes=self._counts.get(name, 0),
                mean_return=mean,
                actors=len(self._policy_server.sessions.live()),
            )


def serve_inference(loaded: LoadedRun, folder: RunFolder) -> int:
    """Acts until it is stopped, and returns the exit code.

    Raises:
        UserError: there is nothing to act with, or an address cannot be had.
    """
    return asyncio.run(_serve(loaded, folder))


async def _serve(loaded: LoadedRun, folder: RunFolder) -> int:
    options, service = loaded.options, loaded.options.rollcast
    store = CheckpointStore(folder)
    state = store.load_run_state() if folder.resuming else None
    config = ServeConfig(
        options=options,
        run_id=folder.run_id,
        generation=folder.next_generation(at_least=0 if state is None else state.generation),
        seed=choose_seed(options, {} if state is None else state.extra),
        load=partial(_load, store, {} if state is None else state.trainers, service.resume_checkpoint),
        task=policy_pb2.BehaviorAssignment(
            role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.LEARN), purpose=Purpose.EVALUATE
        ),
        has_site=True,
        falls_back=http_address_is_default(loaded),
        folder=folder.path,
        behaviors_table=None if state is None else state.behaviors_table,
    )
    watching = partial(Watching, window_episodes=service.reward_buffer_episodes, every_seconds=service.summary_seconds)
    try:
        stop = await PolicyServer(config, watching).run(partial(_announce, folder, config))
    finally:
        remove_addresses(folder.path)
    if stop.error is not None:
        raise stop.error
    return ExitCode.OK


def _load(store: CheckpointStore, saved: Mapping[str, Mapping[str, object]], choice: str, trainer: Trainer) -> None:
    """Gives a trainer the state that acts.

    Raises:
        UserError: it cannot be read or does not fit.
    """
    name = trainer.brain_name
    if name in saved and choice != LAST:
        trainer.load_state_dict(load_chosen(store.folder.path, name, choice, store.status).state)
    elif name in saved:
        trainer.load_state_dict(saved[name])
    elif (initial := store.load_initial(name, trainer.trainer_settings.init_path)) is not None:
        trainer.load_initial_state(initial.state)
    else:
        log.warning("untrained_policy", behavior=name, reason="no run is resumed, and none is begun from")


def _announce(folder: RunFolder, config: ServeConfig, bound: BoundAddresses) -> None:
    page = f"http://{bound.http}/" if bound.http else ""
    announce(folder, bound, page=page, generation=config.generation, seed=config.seed, inference=True)
