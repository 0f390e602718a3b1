"""Implements ``serve`` for a run that trains: the service here, its trainers in a thread or in a process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from rollcast.history import open_learner_history

from learner.link.channel import Link
from learner.link.opening import Begin, GiveUp, Opened
from learner.service.ingest.session_ids import session_key
from learner.service.run.front import Front, Served, Site
from learner.service.run.stopping import ACTORS_ENDED
from learner.service.view.display import open_display
from learner.service.web.status_site import http_address_is_default
from learner.shared.observe.address import BoundAddresses
from learner.shared.runfolder.received import ReceivedSteps
from learner.shared.runfolder.runfolder import RunFolder, must_fit
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from learner.start.about_run import AboutRun
from learner.start.actors import TrainingActors
from learner.start.announcing import announce
from learner.start.trainer_hosts import AwaitedTrainers
from learner.start.trainer_process import TrainerProcess
from learner.start.trainer_start import StartedTrainers


class Trainers(Protocol):
    """The trainers' side of a run, wherever it runs; `Opened` tells what the service continues from."""

    link: Link
    opened: Opened

    def close(self, *, is_over: bool = False) -> None:
        """Ends what outlives the run.

        Args:
            is_over: Whether the run has ended as it should, so that no other start needs trainers.
        """


class TrainingRun:
    """One start of a learner in its run folder.

    Args:
        loaded: The settings and their sources.
        folder: The run folder, open.
        trainers: The trainers' side.
        actors: The actors to start once the learner listens; None for none.
        takes_signals: Whether signals of the process stop the run.
        before: The start whose trainers died: this one listens where it did, so that its actors find it, counts its time
            and stays paused; None for the first.

    Raises:
        UserError: The state to resume from does not fit.

    Attributes:
        trainers: As given.
        front: Front that serves the run.
        bound: Where it listens; before `serve`, where the start before did.
    """

    def __init__(
        self,
        loaded: LoadedRun,
        folder: RunFolder,
        trainers: Trainers,
        before: TrainingRun | None = None,
        *,
        actors: TrainingActors | None = None,
        takes_signals: bool = True,
    ) -> None:
        self._actors = actors
        bound = None if before is None else before.bound
        self.bound: BoundAddresses | None = bound
        self._is_paused = before is not None and before.front.control.is_paused
        started = trainers.started if isinstance(trainers, TrainerProcess) else None
        self._has_own_trainers = not isinstance(started, AwaitedTrainers)
        self._options = options = loaded.options if bound is None else _listening_at(bound, loaded.options)
        self._folder = folder
        self._link = link = trainers.link
        self.trainers = trainers
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.trainers.close)
            self._opened = opened = self.trainers.opened
            self.front: Front = Front(
                options,
                link,
                run_id=folder.run_id,
                generation=opened.generation,
                seed=opened.seed,
                site=Site(
                    folder.path,
                    http_address_is_default(loaded),
                    AboutRun(folder.path, loaded, "" if actors is None else actors.page),
                ),
                snapshots=SnapshotFiles(folder.path),
                session_key=session_key(folder.path),
                history=open_learner_history(opened.generation),
                has_own_actors=actors is not None,
                own_tokens=() if actors is None else actors.tokens,
                takes_signals=takes_signals,
                falls_back=bound is None and actors is not None and actors.may_move,
            )
            if before is not None:
                self.front.run_status.since = before.front.run_status.since
            if isinstance(started, StartedTrainers):
                self.front.metrics.watch_trainers(started.process.pid)
            if opened.books is not None:
                with must_fit(folder.run_state):
                    self.front.restore(opened.books, opened.status, opened.trained)
            self._received = ReceivedSteps(folder.path, options.rollcast.max_sessions)
            self.front.keep_received(self._received)
            on_failure.pop_all()

    def serve(self) -> Served:
        """Trains until the run ends.

        Raises:
            UserError: An address is unavailable, or a trainer failed.
        """
        service = self._options.rollcast
        display = open_display(service.log_format, service.summary_seconds)
        served: Served | None = None
        try:
            served = asyncio.run(self.front.run(self._opened.assignment, self._begin, display))
            return served
        except BaseException as error:
            self._link.to_trainers.send(GiveUp(str(error)))
            raise
        finally:
            self.trainers.close(is_over=served is not None and (served.is_final or self._has_own_trainers))
            self._received.close()

    def _begin(self, bound: BoundAddresses, page: str) -> None:
        self.bound = bound
        self._link.to_trainers.send(Begin(bound))
        if self._is_paused:
            self.front.control.stay_paused()
        opened = self._opened
        announce(
            self._folder,
            bound,
            page=page,
            generation=opened.generation,
            seed=opened.seed,
            device=opened.device,
        )
        if self._actors is not None:
            self._actors.start(bound.address, lambda: self.front.stopping.ask_anywhere(ACTORS_ENDED, final=False))


def _listening_at(bound: BoundAddresses, options: RunOptions) -> RunOptions:
    """Returns the options with the addresses of an earlier start in place of those that leave the port open."""
    found = {"address": bound.address}
    if bound.http:
        found["http_address"] = bound.http
    return options.model_copy(update={"rollcast": options.rollcast.model_copy(update=found)})
