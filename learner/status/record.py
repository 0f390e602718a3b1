"""The record of a run: tells its journal, its progress file and the user's callbacks what happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from learner.callbacks.base import (
    CheckpointSaved,
    EpisodesFinished,
    Event,
    PolicyUpdated,
    RunEnded,
    RunStarted,
)
from learner.callbacks.runner import CallbackRunner, load_callbacks
from learner.checkpoints.runfolder import RunFolder
from learner.common.files import WriteFailed
from learner.ingest.session import ActorSession
from learner.link.evaluation import EvaluationResult
from learner.observe.journal import Journal
from learner.observe.jsonfile import write_json
from learner.observe.rates import Throttle
from learner.observe.summary import best_returns, progress_document, write_progress
from learner.observe.versions import VERSIONS_FILE, main_versions, versions
from learner.observe.view import RunState, RunView
from learner.settings.load import LoadedRun
from learner.status.run_status import TrainerStats

LOOK_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 5.0
MAX_NAMED_ACTORS: Final = 20
"""Of more that join or leave within a second, the journal has the number alone."""
_LOG_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


class RunRecord:
    """Notes what happens from `begin` to `end`; what it cannot write costs the run nothing.

    A thread of its own looks once a second at what nobody tells it: actors, pauses, updates that failed.

    Args:
        folder: of the run.
        generation: of this start of the learner.
        resumed: it goes on from a checkpoint.
        seed: of the run.
        view: returns the status at this moment.
        live: returns the sessions of the actors that are here.
        callbacks: the user's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        generation: int,
        resumed: bool,
        seed: int,
        view: Callable[[], RunView],
        live: Callable[[], Sequence[ActorSession]],
        callbacks: Sequence[CallbackRunner] = (),
    ) -> None:
        self._folder = folder
        self._generation = generation
        self._resumed = resumed
        self._seed = seed
        self._view = view
        self._live = live
        self._callbacks = tuple(callbacks)
        self._journal = Journal(folder, generation)
        self._throttle = Throttle(_LOG_SECONDS)
        self._best = best_returns(folder) if resumed else {}
        self._news: dict[str, TrainerStats] = {}
        self._actors: dict[str, str] = {}
        self._paused = False
        self._told_state: RunState | None = None
        self._failed_steps: dict[str, int] = {}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_ended = False

    @classmethod
    def of(
        cls,
        loaded: LoadedRun,
        folder: RunFolder,
        *,
        generation: int,
        seed: int,
        view: Callable[[], RunView],
        live: Callable[[], Sequence[ActorSession]],
    ) -> Self:
        """Makes the record of a start, with the callbacks that its settings name.

        Raises:
            UserError: a callback cannot be made.
        """
        made = load_callbacks(loaded.options.rollcast.callbacks)
        callbacks = [CallbackRunner(name, callback) for name, callback in made]
        return cls(
            folder.path,
            generation=generation,
            resumed=folder.resuming,
            seed=seed,
            view=view,
            live=live,
            callbacks=callbacks,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the record; an error that nobody told it of is why."""
        if not self._is_ended:
            self.end("error" if error is not None else "unknown", "" if error is None else str(error))

    def begin(self, address: str) -> None:
        """Notes that the learner listens."""
        name = "resumed" if self._resumed else "started"
        self._journal.note(name, seed=self._seed, address=address, versions=main_versions())
        self._tell(RunStarted(self._folder.name, self._folder, self._generation, self._resumed, self._seed, address))
        self._thread = threading.Thread(target=self._look_often, name="record", daemon=True)
        self._thread.start()

    def note_turn(self, behavior: str, news: TrainerStats, returns: Sequence[float]) -> None:
        """Takes in what a trainer is like after a turn; in its thread.

        Args:
            behavior: its name.
            news: the numbers.
            returns: of the newest training episodes, oldest first.
        """
        before = self._news.get(behavior, None if self._resumed else TrainerStats())
        self._news[behavior] = news
        if news.is_full and news.mean_return is not None:
            self._best[behavior] = max(news.mean_return, self._best.get(behavior, news.mean_return))
        if before is None or not self._callbacks:
            return
        finished = news.episodes - before.episodes
        if finished > 0:
            self._tell(EpisodesFinished(behavior, news.episodes, finished, tuple(returns)[-finished:]))
        if news.version > before.version:
            self._tell(
                PolicyUpdated(
                    behavior=behavior,
                    version=news.version,
                    env_steps_trained=news.env_steps_trained,
                    episodes=news.episodes,
                    mean_return=news.mean_return,
                    mean_lag=news.mean_lag,
                    log_prob_error_max=news.log_prob_error_max,
                )
            )

    def note_saved(self, behavior: str, step: int, path: Path) -> None:
        """Notes a checkpoint; from any thread."""
        self._journal.note("checkpoint", behavior=behavior or None, step=step, file=path.name)
        self._tell(CheckpointSaved(behavior, step, path))

    def note_not_saved(self, reason: str) -> None:
        """Notes a checkpoint that could not be written; from any thread."""
        self._journal.note("checkpoint_failed", error=reason)

    def note_spoiled(self, reason: str) -> None:
        """Notes why a run in lock-step is not reproducible any more; from any thread."""
        self._journal.note("not_reproducible", reason=reason)

    def note_evaluation(self, result: EvaluationResult) -> None:
        """Notes what an evaluation came to."""
        self._journal.note("evaluation", **result.document())

    def end(self, reason: str, error: str = "", *, is_complete: bool = True) -> None:
        """Notes the end of the run, and waits for the callbacks to hear of it.

        Args:
            reason: see `RunEnded`.
            error: in one line.
            is_complete: everything was saved.
        """
        self._is_ended = True
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._look()
            self._write_progress(state="ended")
        event = "failed" if error else "finished"
        self._journal.note(event, reason=reason, **({"error": error} if error else {}), is_complete=is_complete)
        self._journal.close()
        for callback in self._callbacks:
            callback.end(RunEnded(reason, error, self._folder))

    def _tell(self, event: Event) -> None:
        for callback in self._callbacks:
            callback.tell(event)

    def _look_often(self) -> None:
        self._write_versions()
        progress_at = time.monotonic()
        while not self._ending.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # a record never ends a run
                if self._throttle.admit("look") is not None:
                    log.error("record_failed", exc_info=error)
                continue
            if time.monotonic() - progress_at >= PROGRESS_SECONDS or self._view().state is not self._told_state:
                progress_at = time.monotonic()
                self._write_progress()

    def _write_versions(self) -> None:
        about = {"run_id": self._folder.name, "seed": self._seed, "generation": self._generation}
        try:
            write_json(self._folder / VERSIONS_FILE, {**about, **versions()})
        except WriteFailed as error:
            log.warning("versions_not_kept", error=str(error))

    def _look(self) -> None:
        view = self._view()
        self._look_at_actors({session.session_id: session.actor_name for session in self._live()})
        if view.state in {RunState.PAUSED, RunState.TRAINING, RunState.WAITING}:
            paused = view.state is RunState.PAUSED
            if paused != self._paused:
                self._paused = paused
                self._journal.note("paused" if paused else "unpaused")
        for behavior in view.behaviors:
            failed = behavior.books["dropped"].get("not_finite_update", 0)
            before = self._failed_steps.get(behavior.name, 0 if not self._resumed else failed)
            self._failed_steps[behavior.name] = failed
            if failed > before:
                self._journal.note("update_failed", behavior=behavior.name, steps=failed - before)

    def _look_at_actors(self, now: Mapping[str, str]) -> None:
        joined = [name for session, name in now.items() if session not in self._actors]
        left = [name for session, name in self._actors.items() if session not in now]
        self._actors = dict(now)
        for event, names in (("actor_left", left), ("actor_joined", joined)):
            if len(names) > MAX_NAMED_ACTORS:
                self._journal.note(f"{event.replace('actor', 'actors')}", count=len(names), actors=len(now))
                continue
            for name in names:
                self._journal.note(event, actor=name, actors=len(now))

    def _write_progress(self, **instead: str) -> None:
        try:
            view = self._view()
            self._told_state = view.state
            write_progress(self._folder, progress_document(view, dict(self._best), time.time()) | instead)
        except WriteFailed as error:
            if self._throttle.admit("progress") is not None:
                log.warning("progress_not_kept", error=str(error))
