"""Runs a sweep: samples settings with Optuna, trains a run with each, reports its returns, and ends the worse ones early.

Optuna decides and remembers; this module starts trials as processes of their own, follows their curves, and writes the page. One
process at a time has a study. A trial that was cut off is failed in the study, and another one with its settings continues its run.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna import Study as OptunaStudy
from optuna import Trial, pruners
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState
from rollcast.addresses import split_address
from rollcast.exits import RollcastError

from learner.cli.operator import Operator
from learner.cli.run_groups import read_settings
from learner.cli.sweep_page import ENDED, FAILED, PRUNED, RUNNING, WAITING, TrialRow, page
from learner.cli.sweep_request import BEST, TARGET_STEPS, Request, Study
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, write_file
from learner.shared.observe.address import read_addresses
from learner.shared.observe.csvfile import STATS_FILE
from learner.shared.observe.curves import RETURN_KEY, Curve, read_curves
from learner.shared.observe.summary import SUMMARY_FILE, best_returns, finite, read_small_json
from learner.shared.runfolder.lock import FolderLock
from learner.shared.runfolder.names import safe_name
from learner.shared.settings.addresses import with_port
from learner.shared.settings.by_name import settings_by_name
from learner.start.command_process import END_SECONDS, CommandProcess

STUDY_FILE: Final = "study.db"
PAGE_FILE: Final = "index.html"
LOOK_SECONDS: Final = 0.25
"""Time between two looks at the trials."""
PAGE_SECONDS: Final = 5.0
"""Least time between two versions of the page while trials run."""
WINDOW: Final = 20
"""A reported return is the mean of the newest 20 episodes or more."""
MOST_FAILURES: Final = 3
"""Failures one after the other that end a sweep; of the first trial, one."""
_FIRST_TRIALS, _FIRST_SUMMARIES = 5, 2
"""Trials, and summaries of a trial, before one is compared with the median."""
_LEAST_FOR_IMPORTANCE: Final = 4
_CONTINUES, _FOLDER, _TERMS = "continues", "folder", "terms"
_STATES: Final = {
    TrialState.RUNNING: RUNNING,
    TrialState.WAITING: WAITING,
    TrialState.COMPLETE: ENDED,
    TrialState.PRUNED: PRUNED,
    TrialState.FAIL: FAILED,
}
_BY_OPERATOR: Final = "operator"
_BY_SIGNAL: Final = "signal"


def warn_only() -> None:
    """Keeps Optuna, whose log is the whole process's, from a line for each of its steps."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def sweep(request: Request, stop: threading.Event | None = None, say: Callable[[str], object] = str) -> Study:
    """Runs trials until the study has as many as were asked for, and returns it.

    Args:
        request: The sweep.
        stop: Set to end it: its runs save, and their trials continue with the next sweep of this study.
        say: Takes a line for the user.

    Raises:
        UserError: Another sweep has the study, its terms differ, or trials fail.
    """
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(request.folder)
    except OSError as error:
        raise UserError(
            ExitCode.NOT_SAVED, f"{request.folder} cannot be written: {error.strerror}; choose another --results-dir"
        ) from None
    try:
        return _Sweep(request, stop or threading.Event(), say).run()
    finally:
        lock.release()


@dataclass(slots=True)
class _Running:
    """A trial that runs."""

    trial: Trial
    process: CommandProcess
    folder: Path
    slot: int
    is_last: bool
    is_pruned: bool = False
    reported_step: int = -1
    newest_return: float | None = None


@dataclass(slots=True)
class _Curves:
    """The return curves of trials by run folder, read again only when they have grown."""

    behavior: str | None
    _read: dict[Path, tuple[tuple[int, int], Curve | None]] = field(default_factory=dict)

    def of(self, folder: Path) -> Curve | None:
        """Returns the curve of a trial; None before its first summary with a finished episode."""
        files = (
            [folder / safe_name(self.behavior) / STATS_FILE]
            if self.behavior
            else sorted(folder.glob(f"*/{STATS_FILE}"))
        )
        version = (0, 0)
        with suppress(OSError, IndexError):
            status = files[0].stat()
            version = (status.st_mtime_ns, status.st_size)
        found = self._read.get(folder)
        if found is None or found[0] != version:
            curve = None
            with suppress(UserError, IndexError, OSError):
                curves = read_curves(folder, RETURN_KEY, WINDOW)
                curve = next((each for each in curves if each.behavior == files[0].parent.name), None)
            found = self._read[folder] = (version, curve)
        return found[1]


class _Sweep:
    """A sweep in progress.

    Args:
        request: What is asked for.
        stop: Ends it.
        say: Takes a line for the user.
    """

    def __init__(self, request: Request, stop: threading.Event, say: Callable[[str], object]) -> None:
        self._request, self._stop, self._say = request, stop, say
        self._study = _open_study(request)
        self._running: list[_Running] = []
        self._closed_slots: set[int] = set()
        self._curves = _Curves(request.behavior)
        self._failures = 0
        self._shown_at = 0.0
        self._importance: dict[str, float] = {}

    def run(self) -> Study:
        """Runs the trials, and returns the study.

        Raises:
            UserError: Trials fail.
        """
        if cut := self._continue_cut_trials():
            self._say(f"trials that were cut off continue: {cut}")
        self._started = len(self._ended())
        try:
            while not self._stop.is_set():
                self._start_trials()
                if not self._running:
                    break
                for running in tuple(self._running):
                    self._look(running)
                self._write_page()
                self._stop.wait(LOOK_SECONDS)
        finally:
            for running in self._running:
                running.process.ask_to_stop()
            for running in tuple(self._running):
                running.process.stop()
            self._running.clear()
            self._continue_cut_trials()
            self._importance = _importance(self._study)
            self._write_page(is_over=True)
        return self._result()

    def _ended(self) -> list[FrozenTrial]:
        """Returns the trials that count: those that have ended, and were not cut off."""
        trials = self._study.get_trials(deepcopy=False)
        cut = {trial.user_attrs.get(_CONTINUES) for trial in trials}
        return [trial for trial in trials if trial.state.is_finished() and trial.number not in cut]

    def _continue_cut_trials(self) -> int:
        """Fails the trials that run in the study and not here, and queues others that continue their runs; returns their number."""
        cut = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial in cut:
            folder, until = self._folder(trial), time.monotonic() + END_SECONDS
            attributes: dict[str, object] = {_CONTINUES: trial.number}
            if folder is not None:
                attributes[_FOLDER] = folder.name
                while FolderLock.is_held(folder) and time.monotonic() < until:  # its learner still saves
                    if self._stop.wait(LOOK_SECONDS):
                        break
            self._study.enqueue_trial(trial.params, user_attrs=attributes)
            self._study.tell(trial.number, state=TrialState.FAIL)
        return len(cut)

    def _folder(self, trial: Trial | FrozenTrial) -> Path | None:
        """Returns the run folder of a trial; None if it has not begun."""
        name = trial.user_attrs.get(_FOLDER)
        return None if name is None else self._request.folder / str(name)

    def _new_folder(self) -> Path:
        """Returns the run folder of a trial that continues no other: the next number."""
        trials = self._study.get_trials(deepcopy=False)
        return self._request.folder / f"{len({trial.user_attrs.get(_FOLDER) for trial in trials} - {None}):04d}"

    def _start_trials(self) -> None:
        """Starts trials in the free places, as long as the study lacks some."""
        request = self._request
        taken = {running.slot for running in self._running} | self._closed_slots
        for slot in range(request.parallel):
            left = request.trials - self._started
            if slot in taken or left <= 0:
                continue
            # The last trials are one in each place, so that the actors of each are told that they may leave.
            is_last = request.address is not None and left <= request.parallel
            if is_last:
                self._closed_slots.add(slot)
            self._started += 1
            self._start(slot, is_last=is_last)

    def _start(self, slot: int, *, is_last: bool) -> None:
        request, trial = self._request, self._study.ask()
        sampled = {name: space.sample(trial, name) for name, space in request.space.items()}
        folder = self._folder(trial)
        is_continued = folder is not None
        if folder is None:
            folder = self._new_folder()
            trial.set_user_attr(_FOLDER, folder.name)
        words = [f"--run-id={request.folder.name}/{folder.name}", f"--results-dir={request.folder.parent}"]
        if is_continued:
            words.append("--resume=auto")
        elif request.is_forced:
            words.append("--force")
        if slot:
            words.append("--http-address=127.0.0.1:0")
        if request.address is not None:
            words.append(f"--address={with_port(request.address, split_address(request.address)[1] + slot)}")
            words.append(f"--set=rollcast.keep_actors={json.dumps(not is_last)}")
        for name, value in sampled.items():
            words += [f"--set={path}={text}" for path, text in settings_by_name(name, value)]
        process = CommandProcess([request.command, *request.words, *words, *request.last_words], ExitStack())
        self._running.append(_Running(trial, process, folder, slot, is_last))
        self._say(f"trial {folder.name}: {', '.join(f'{name}={shown(value)}' for name, value in sampled.items())}")

    def _look(self, running: _Running) -> None:
        """Reports what a trial has reached, and ends it early if it is one of the worse; notes its end.

        Raises:
            UserError: It failed, as others before it.
        """
        has_ended = not running.process.is_running  # first: what it wrote until then is read
        if self._report(running) and not has_ended and not running.is_pruned and running.trial.should_prune():
            running.is_pruned = True
            self._end_early(running)
        if has_ended:
            self._running.remove(running)
            self._tell(running)
            self._importance = _importance(self._study)
            self._shown_at = 0.0

    def _report(self, running: _Running) -> bool:
        """Reports the new points of a trial's curve, by the number of the summary; returns whether there are any."""
        curve = self._curves.of(running.folder)
        if curve is None or curve.steps[-1] <= running.reported_step:
            return False
        interval = 1
        with suppress(UserError, ValueError, KeyError):
            interval = max(1, int(float(read_settings(running.folder, curve.behavior)["summary_freq"])))
        sign = -1.0 if self._request.objective == TARGET_STEPS else 1.0
        for step, value in zip(curve.steps, curve.values, strict=True):
            if step > running.reported_step:
                running.trial.report(sign * value, step // interval)
        running.reported_step, running.newest_return = curve.steps[-1], curve.values[-1]
        return True

    def _end_early(self, running: _Running) -> None:
        addresses = read_addresses(running.folder)
        try:
            if addresses is None:
                raise UserError(ExitCode.UNREACHABLE, "it ends")
            Operator.of(addresses).drain(final=running.is_last or self._request.address is None)
        except UserError:  # without a page, or already about to end
            running.process.ask_to_stop()

    def _tell(self, running: _Running) -> None:
        """Records how a trial has ended.

        Raises:
            UserError: It failed, as others before it.
        """
        name, error = running.folder.name, running.process.error
        summary = read_small_json(running.folder / SUMMARY_FILE)
        value = self._value(running.folder, summary)
        reason = summary.get("stop_reason")
        if error is None and reason == _BY_SIGNAL and not running.is_pruned:
            self._say(f"trial {name}: stopped by a signal; the next sweep of this study continues it")
            return
        if error is None and (running.is_pruned or reason == _BY_OPERATOR):
            self._study.tell(running.trial, state=TrialState.PRUNED)
            self._say(f"trial {name}: ended early at {shown(running.newest_return)}")
        elif error is None and value is not None:
            self._study.tell(running.trial, value)
            best = self._study.best_trial
            self._say(f"trial {name}: {shown(value)} (best: {shown(best.value)} of trial {best.user_attrs[_FOLDER]})")
        else:
            self._study.tell(running.trial, state=TrialState.FAIL)
            self._fail(name, error or UserError(ExitCode.TRAINER_FAILED, "no episode has ended; raise max_steps"))
            return
        self._failures = 0

    def _fail(self, name: str, error: RollcastError) -> None:
        """Ends the sweep if failures follow one another.

        Raises:
            UserError: They do.
        """
        self._failures += 1
        self._say(f"trial {name}: failed: {error}")
        if self._failures >= MOST_FAILURES or not any(trial.value is not None for trial in self._ended()):
            raise error

    def _value(self, folder: Path, summary: Mapping[str, Any]) -> float | None:
        """Returns the objective of a trial that has ended; None if no episode has."""
        several = summary.get("behaviors")
        behaviors = several if isinstance(several, dict) else {str(summary.get("behavior")): summary}
        name = next(iter(behaviors)) if self._request.behavior is None else self._request.behavior
        found = behaviors.get(name)
        if not isinstance(found, dict) or (final := finite(found.get("mean_return_100"))) is None:
            return None
        if self._request.objective == TARGET_STEPS:
            reached = finite(found.get("env_steps_to_target"))
            return finite(found.get("env_steps_taken")) if reached is None else reached
        return max(final, best_returns(folder).get(name, final)) if self._request.objective == BEST else final

    def _rows(self) -> Iterator[TrialRow]:
        """Yields the rows of the trials; of one that was cut off, that of the trial that continues it."""
        trials = self._study.get_trials(deepcopy=False)
        cut = {trial.user_attrs.get(_CONTINUES) for trial in trials}
        for trial in trials:
            folder, state = self._folder(trial), _STATES[trial.state]
            if folder is not None and trial.number not in cut:
                settings = trial.params or trial.system_attrs.get("fixed_params", {})
                value = trial.value if state == ENDED else None  # of another one it would be its newest return
                yield TrialRow(folder.name, state, value, settings, self._curves.of(folder))

    def _write_page(self, *, is_over: bool = False) -> None:
        if not is_over and time.monotonic() < self._shown_at + PAGE_SECONDS:
            return
        self._shown_at = time.monotonic()
        request = self._request
        text = page(
            request.folder.name,
            tuple(self._rows()),
            request.terms,
            self._importance,
            is_lower_better=request.objective == TARGET_STEPS,
            refresh_seconds=None if is_over else PAGE_SECONDS,
        )
        with suppress(WriteFailed):  # the study is in its own file
            write_file(request.folder / PAGE_FILE, text.encode())

    def _result(self) -> Study:
        rows = [row for row in self._rows() if row.state not in {RUNNING, WAITING}]
        columns: dict[str, NDArray[Any]] = {
            "number": np.array([int(row.folder) for row in rows], np.int64),
            "state": np.array([row.state for row in rows], str),
            "value": np.array([row.value for row in rows], np.float64),
            "run": np.array([str(self._request.folder / row.folder) for row in rows], str),
        }
        columns |= {name: np.array([row.settings.get(name) for row in rows]) for name in self._request.space}
        best = None
        with suppress(ValueError):  # no trial has ended
            best = self._study.best_trial
        return Study(
            folder=self._request.folder,
            best_settings={} if best is None else best.params,
            best_value=None if best is None else best.value,
            best_run=None if best is None else self._folder(best),
            importance=self._importance,
            trials=columns,
        )


def _open_study(request: Request) -> OptunaStudy:
    """Returns the study in the folder, made if there is none.

    Raises:
        UserError: It has other terms, or cannot be read.
    """
    path = request.folder / STUDY_FILE
    if request.is_forced:
        path.unlink(missing_ok=True)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path}",
            pruner=_pruner(request.pruner),
            study_name=request.folder.name,
            direction="minimize" if request.objective == TARGET_STEPS else "maximize",
            load_if_exists=True,
        )
        trials = len(study.get_trials(deepcopy=False))
        earlier = study.user_attrs.get(_TERMS)
    except Exception as error:  # noqa: BLE001 - a damaged file fails in any part of Optuna or its database
        raise UserError(ExitCode.BAD_CHECKPOINT, f"{path} cannot be read as a study: {error}") from None
    if earlier is None:
        study.set_user_attr(_TERMS, request.terms)
    elif earlier != request.terms:
        raise UserError(
            ExitCode.RUN_FOLDER_EXISTS,
            f"the study in {request.folder} has other terms, {json.dumps(earlier)}: give the same --space and --objective, choose "
            "another --run-id, or start over with --force",
        )
    # Each start draws other samples, or the first trials of the study would be sampled again.
    study.sampler = TPESampler(seed=None if request.seed is None else request.seed + trials, constant_liar=True)
    return study


def _pruner(name: str) -> pruners.BasePruner:
    if name == "median":
        return pruners.MedianPruner(n_startup_trials=_FIRST_TRIALS, n_warmup_steps=_FIRST_SUMMARIES)
    return pruners.HyperbandPruner() if name == "hyperband" else pruners.NopPruner()


def _importance(study: OptunaStudy) -> dict[str, float]:
    """Returns the share of each setting, which needs no library beside Optuna; empty if too few trials have ended."""
    if len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) < _LEAST_FOR_IMPORTANCE:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of few trials
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def shown(value: object) -> str:
    """Returns a value as text for a line."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value) if value is None else str(value)
