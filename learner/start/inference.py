"""Implements ``rollcast serve --inference``: actors use a run's policy; nothing is learned or saved."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

import structlog
from rollcast.enums import AssignmentRole

from learner.link.channel import Link
from learner.link.matches import Game, games_of
from learner.link.to_trainers import Experience
from learner.service.run.front import Site
from learner.service.web.status_site import http_address_is_default
from learner.shared.exits import ExitCode
from learner.shared.observe.address import BoundAddresses, remove_addresses
from learner.shared.runfolder.choice import load_chosen
from learner.shared.runfolder.names import LAST
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.runfolder.store import CheckpointStore, last_states
from learner.shared.settings.load import LoadedRun
from learner.start.about_run import AboutRun
from learner.start.acting import act
from learner.start.announcing import announce
from learner.start.finished_run import without_training_limits
from learner.training.matches.result import EvaluationResult
from learner.training.run.context import RunContext
from learner.training.run.setup import choose_seed
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers

log = structlog.get_logger(__name__)


class SavedPolicy(RunPart):
    """Loads the trainers' states, from the resumed run or from the run that this one starts from.

    Args:
        store: Checkpoints of the run folder.
        saved: The newest state of each trainer.
        choice: The checkpoint to use; ``last`` is the newest state.
    """

    def __init__(self, store: CheckpointStore, saved: Mapping[str, Mapping[str, object]], choice: str) -> None:
        self._store = store
        self._saved = saved
        self._choice = choice

    def trainer_added(self, trainer: Trainer) -> None:
        """Loads a trainer's state.

        Raises:
            UserError: The state cannot be read or does not fit.
        """
        name, store = trainer.brain_name, self._store
        if name in self._saved and self._choice != LAST:
            trainer.load_state_dict(load_chosen(store.folder.path, name, self._choice, store.status).state)
        elif name in self._saved:
            trainer.load_state_dict(self._saved[name])
        elif (initial := store.load_initial(name, trainer.trainer_settings.init_path)) is not None:
            trainer.load_initial_state(initial.state)
        else:
            log.warning(
                "untrained_policy", behavior=name, reason="the run is not resumed and starts from no checkpoint"
            )


class Watching(RunPart):
    """Logs the returns of the actors periodically.

    Whenever a full window of episodes has ended, their result is added to the metrics.

    Args:
        context: Shared state of the run.
        window_episodes: Episodes in the mean return.
        every_seconds: Seconds between two log lines.
    """

    def __init__(self, context: RunContext, *, window_episodes: int, every_seconds: float) -> None:
        self._context = context
        self._window_episodes = window_episodes
        self._every_seconds = every_seconds
        self._told_at = time.monotonic()
        self._newest: dict[str, deque[Game]] = {}
        self._counts: dict[str, int] = {}

    def received(self, behavior: str, item: Experience) -> None:
        """Adds the finished episodes of a chunk."""
        newest = self._newest.setdefault(behavior, deque(maxlen=self._window_episodes))
        for game in games_of(behavior, item.chunk):
            newest.append(game)
            self._counts[behavior] = self._counts.get(behavior, 0) + 1
            if self._counts[behavior] % self._window_episodes == 0:
                result = EvaluationResult.of(behavior, newest, step=0, version=0, is_deterministic=False)
                meters, returns = self._context.meters.behavior(behavior), result.returns
                meters.note_evaluation(self._window_episodes)
                meters.show_evaluation(mean=returns.mean, std=returns.std, step=0, length=result.lengths.mean)

    def after_turn(self, trainers: Trainers) -> None:
        """Logs the results if it is time."""
        now = time.monotonic()
        if now - self._told_at < self._every_seconds:
            return
        self._told_at = now
        for name, trainer in trainers.items():
            newest = self._newest.get(name)
            mean = round(sum(game.total for game in newest) / len(newest), 3) if newest else None
            log.info(
                "acting",
                behavior=name,
                step=trainer.get_step,
                episodes=self._counts.get(name, 0),
                mean_return=mean,
                actors=len(self._context.roster.actors),
            )


def serve_inference(loaded: LoadedRun, folder: RunFolder, *, takes_signals: bool) -> int:
    """Serves a policy until it is stopped, and returns the exit code.

    Raises:
        UserError: There is no policy, an address is unavailable, or a policy failed.
    """
    options = without_training_limits(loaded)
    service = options.rollcast
    store = CheckpointStore(folder)
    state = store.load_run_state() if folder.resuming else None
    link = Link()
    generation = folder.next_generation(at_least=0 if state is None else state.generation)
    seed = choose_seed(options, {} if state is None else state.extra)
    context = RunContext(options, link, run_id=folder.run_id, generation=generation, seed=seed, folder=folder.path)
    context.lessons.set_numbers(store.status.lessons(context.lessons.numbers()))
    watching = Watching(context, window_episodes=service.reward_buffer_episodes, every_seconds=service.summary_seconds)
    policy = SavedPolicy(
        store, {} if state is None else last_states(store.folder.path, state), service.resume_checkpoint
    )

    def tell(bound: BoundAddresses, page: str) -> None:
        announce(folder, bound, page=page, generation=context.generation, seed=context.seed, inference=True)

    try:
        act(
            context,
            (policy, watching),
            tell,
            saved=None if state is None else state.behaviors_table,
            role=AssignmentRole.LEARN,
            takes_signals=takes_signals,
            site=Site(folder.path, http_address_is_default(loaded), AboutRun(folder.path, loaded)),
        )
    finally:
        remove_addresses(folder.path)
    return ExitCode.OK
