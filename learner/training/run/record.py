"""The record of a run: its journal and its progress file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog
from rollcast.throttle import Throttle

from learner.link.control import SettingChange
from learner.shared.files import WriteFailed
from learner.shared.observe.journal import Journal
from learner.shared.observe.jsonfile import write_json
from learner.shared.observe.summary import best_returns, progress_document, write_progress
from learner.shared.observe.versions import VERSIONS_FILE, main_versions, versions
from learner.shared.observe.view import RunState, RunView
from learner.training.curriculum.lessons import LessonChange
from learner.training.matches.result import EvaluationResult
from learner.training.trainers.parts import Ending, RunPart, Trainers
from learner.training.trainers.roster import Roster

LOOK_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 5.0
MAX_NAMED_ACTORS: Final = 20
"""Most actors named in the journal; if more join or leave within a second, the journal has only their number."""
_LOG_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


class RunRecord(RunPart):
    """Records events from `begin` to `finish`; a failed write does not affect the run.

    A separate thread checks once a second what no event reports: actors, pauses, failed updates.

    Args:
        folder: Folder of the run.
        generation: Generation of this start of the learner.
        resumed: Whether the run continues from a checkpoint.
        seed: Seed of the run.
        code: Setting, name, file and SHA-256 of each module of the user that the run file names.
        roster: The newest information of the service about actors and run.
        is_superseded: Returns whether another learner has taken the folder over; nothing is written then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        generation: int,
        resumed: bool,
        seed: int,
        roster: Roster,
        code: Sequence[Mapping[str, str]] = (),
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._generation = generation
        self._resumed = resumed
        self._seed = seed
        self._roster = roster
        self._code = {"code": [dict(each) for each in code]} if code else {}
        self._journal = Journal(folder, generation)
        self._is_superseded = is_superseded
        self._throttle = Throttle(_LOG_SECONDS)
        self._best = best_returns(folder) if resumed else {}
        self._actors: dict[str, str] = {}
        self._paused = False
        self._told_state: RunState | None = None
        self._failed_steps: dict[str, int] = {}
        self._trained: dict[str, int] = {}  # steps of behaviors whose training ended
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, address: str) -> None:
        """Records that the learner listens."""
        about = {"seed": self._seed, "address": address, "versions": main_versions(), **self._code}
        self._note("started", resumed=self._resumed, **about)
        self._thread = threading.Thread(target=self._look_often, name="record", daemon=True)
        self._thread.start()

    def after_turn(self, trainers: Trainers) -> None:
        """Keeps the best mean return of each behavior."""
        for behavior, trainer in trainers.items():
            mean, returns = trainer.mean_return(), trainer.reward_buffer
            if mean is not None and len(returns) == returns.maxlen:
                self._best[behavior] = max(mean, self._best.get(behavior, mean))

    def training_ended(self, trainers: Trainers, ended: Collection[str]) -> None:
        """Writes the progress of behaviors whose training ended, so that `runs` has it even if the run ends with an error."""
        self._trained.update({name: trainers[name].steps_trained for name in ended})
        self._write_progress()

    def note_saved(self, behavior: str, step: int, path: Path) -> None:
        """Records a checkpoint; callable from any thread."""
        self._note("checkpoint", behavior=behavior or None, step=step, file=path.name)

    def note_not_saved(self, reason: str) -> None:
        """Records a checkpoint that could not be written; callable from any thread."""
        self._note("checkpoint_failed", error=reason)

    def note_spoiled(self, reason: str) -> None:
        """Records why a lock-step run is no longer reproducible; callable from any thread."""
        self._note("not_reproducible", reason=reason)

    def note_lesson(self, change: LessonChange) -> None:
        """Records that a parameter has reached its next lesson."""
        self._note("lesson_begun", parameter=change.parameter, lesson=change.lesson, number=change.number + 1)

    def note_change(self, change: SettingChange, principal: str, is_undo: bool) -> None:
        """Records that a setting has another value from the next update on, and who requested it."""
        event = "setting_undone" if is_undo else "setting_changed"
        self._note(event, setting=change.name, old=change.old, new=change.new, by=principal)

    def note_evaluation(self, result: EvaluationResult) -> None:
        """Records the result of an evaluation."""
        self._note("evaluation", **result.document())

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Records the end of the run."""
        del trainers
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._look()
            self._write_progress(state="ended")
        error = {"error": ending.error_text} if ending.error is not None else {}
        self._note("failed" if error else "finished", reason=ending.reason, **error, is_complete=ending.is_complete)
        self._journal.close()
        return True

    def _note(self, event: str, **fields: object) -> None:
        if not self._is_superseded():
            self._journal.note(event, **fields)

    def _look_often(self) -> None:
        self._write_versions()
        progress_at = time.monotonic()
        while not self._ending.wait(LOOK_SECONDS):
            view = self._look()
            if view is None:
                continue
            if time.monotonic() - progress_at >= PROGRESS_SECONDS or view.state is not self._told_state:
                progress_at = time.monotonic()
                self._write_progress()

    def _write_versions(self) -> None:
        about = {"run_id": self._folder.name, "seed": self._seed, "generation": self._generation}
        try:
            write_json(self._folder / VERSIONS_FILE, {**about, **versions(), **self._code})
        except (OSError, WriteFailed) as error:  # each package is a file to open
            log.warning("versions_not_kept", error=str(error))

    def _look(self) -> RunView | None:
        """Records news and returns the newest view of the run; None before there is one."""
        self._look_at_actors({actor.session_id: actor.name for actor in self._roster.actors})
        view = self._roster.view
        if view is None:
            return None
        if view.state in {RunState.PAUSED, RunState.TRAINING, RunState.WAITING}:
            paused = view.state is RunState.PAUSED
            if paused != self._paused:
                self._paused = paused
                self._note("paused" if paused else "resumed")
        for behavior in view.behaviors:
            failed = behavior.books["dropped"].get("not_finite_update", 0)
            before = self._failed_steps.get(behavior.name, 0 if not self._resumed else failed)
            self._failed_steps[behavior.name] = failed
            if failed > before:
                self._note("update_failed", behavior=behavior.name, steps=failed - before)
        return view

    def _look_at_actors(self, now: Mapping[str, str]) -> None:
        joined = [name for session, name in now.items() if session not in self._actors]
        left = [name for session, name in self._actors.items() if session not in now]
        self._actors = dict(now)
        for event, names in (("actor_left", left), ("actor_joined", joined)):
            if len(names) > MAX_NAMED_ACTORS:
                self._note(f"{event.replace('actor', 'actors')}", count=len(names), actors=len(now))
                continue
            for name in names:
                self._note(event, actor=name, actors=len(now))

    def _write_progress(self, **instead: str) -> None:
        view = self._roster.view
        if view is None or self._is_superseded():
            return
        self._told_state = view.state
        document = progress_document(view, dict(self._best), time.time()) | instead
        for name, steps in dict(self._trained).items():  # the view may be a second old
            if name in document["behaviors"]:
                document["behaviors"][name]["env_steps_trained"] = steps
        try:
            write_progress(self._folder, document)
        except WriteFailed as error:
            if self._throttle.admit("progress") is not None:
                log.warning("progress_not_kept", error=str(error))
