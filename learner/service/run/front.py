"""Serves a run from start to end: listens, watches over it and says goodbye to its actors.

Everything here runs in the event loop's thread unless its docstring says otherwise. The trainers are on the other side
of the link and are reached by messages only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import structlog
from rollcast.auth import Role, TokenRow
from rollcast.history import History
from rollcast.limits import PROTOCOL_REVISION
from rollcast.throttle import Throttle
from rollcast.v1 import policy_pb2

from learner.link.channel import Link
from learner.link.control import Answer, Close, Closed, Ending, Failed, Finished, Seen, Stopped, StopTurns
from learner.link.footprint import MemoryEstimate
from learner.service.calls.run_info import RunInfo
from learner.service.calls.server import LearnerServer
from learner.service.identity.access import OPERATOR, own_row
from learner.service.identity.audit import Requester
from learner.service.identity.setup import identity_of
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.memory_estimates import LinkEstimator
from learner.service.ingest.session_ids import SessionIds
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.snapshots import restore
from learner.service.metrics.learner import LearnerMetrics
from learner.service.policies.store import PolicyStore
from learner.service.run.control import OperatorSignals, RunControl
from learner.service.run.run_status import RunStatus
from learner.service.run.scrape import Scrape, bottleneck_meter
from learner.service.run.stopping import OPERATOR as BY_OPERATOR
from learner.service.run.stopping import SIGNAL, Stop, Stopping
from learner.service.run.update_watch import UpdateWatch
from learner.service.view.display import Display
from learner.service.web.learner_hooks import RunHooks
from learner.service.web.operator_token import TOKEN_FILE, unkept_token
from learner.service.web.status_site import StatusSite, operator_token
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import BoundAddresses
from learner.shared.observe.summary import BehaviorSummary
from learner.shared.observe.values import EPISODE_RETURN
from learner.shared.observe.view import RunState, RunView
from learner.shared.runfolder.received import ReceivedSteps
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.addresses import with_port
from learner.shared.settings.options import RunOptions

log = structlog.get_logger(__name__)

REVISION_VARIABLE = "ROLLCAST_REVISION"
"""Environment variable set when an image is built; names the commit it was built from."""
_WATCH_SECONDS = 0.05
_SHOWN_SECONDS = 1.0
"""Seconds between two views sent to the trainers."""
_STOP_SECONDS = 600.0
"""Seconds that the end of a run waits for the current update; updates of large networks on slow machines take minutes.
"""
_SECOND_SIGNAL = "a second signal skips waiting for actors"

Begin = Callable[[BoundAddresses, str], None]
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Site:
    """The status page of a run.

    Attributes:
        folder: Folder of the operator's token.
        falls_back: Whether to take a free port if the page's own is in use.
        about: Returns the settings and events of the run, and the runs beside it.
    """

    folder: Path
    falls_back: bool
    about: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Served:
    """The end of a run.

    Attributes:
        reason: Why the run stopped.
        is_complete: Whether everything that had to be saved was saved.
        is_final: Whether the run is over; otherwise actors and trainers wait for another start.
        actors: Names of the actors that had joined when the run was asked to end, which leave by themselves if it is over.
    """

    reason: str
    is_complete: bool
    is_final: bool
    actors: frozenset[str] = frozenset()


class Front:
    """One start of a learner, as seen by actors, operators and browsers.

    Args:
        options: The run file.
        link: Link to the trainers.
        run_id: The name of the run.
        generation: Number of this start; grows with each start of the learner.
        seed: Seed from which the environments' seeds are derived.
        task: Returns what actors do until they receive an order; None lets them learn.
        trains: Whether the run trains.
        site: The status page; None for none.
        snapshots: Policies that are kept for matches; None for a run without a folder.
        session_key: Secret with which the ids of sessions are made; None makes one for this start alone.
        history: Records what happens to each chunk; None without a history.
        falls_back: Whether to take a free port if that for actors is in use.
        has_own_actors: Whether the command itself starts actors, so that nobody has to be told how to.
        own_tokens: Tokens of these actors.
        takes_signals: Whether signals of the process stop the run and call its operators' actions.

    Attributes:
        ledger, behaviors, sessions: The ledger, the declared behaviors and the actors.
        store: The policies.
        metrics, run_status: The status shown for the run.
        stopping: Whether and why the run ends.
        control: Requests of operators.
    """

    def __init__(
        self,
        options: RunOptions,
        link: Link,
        *,
        run_id: str,
        generation: int,
        seed: int,
        task: policy_pb2.BehaviorAssignment | None = None,
        trains: bool = True,
        site: Site | None = None,
        snapshots: SnapshotFiles | None = None,
        session_key: bytes | None = None,
        history: History | None = None,
        falls_back: bool = False,
        has_own_actors: bool = False,
        own_tokens: Sequence[TokenRow] = (),
        takes_signals: bool = True,
    ) -> None:
        self._falls_back, self._has_own_actors, self._takes_signals = falls_back, has_own_actors, takes_signals
        self._snapshots = snapshots
        self._options = options
        self._service = options.rollcast
        self._link = link
        self._run_id, self._generation, self._seed = run_id, generation, seed
        self._task, self._trains, self._site = task, trains, site
        # Without a folder no command finds the token, so only operators of a token file change the run.
        self._token = unkept_token() if site is None else operator_token(options.rollcast, site.folder)
        own = (own_row(OPERATOR, Role.OPERATOR, self._token.reveal()), *own_tokens)
        # Where no actor learns, no file of the run changes.
        audited = None if site is None or task is not None else site.folder
        self._identity = identity_of(options.rollcast, own, audited)
        self._address = self._service.address
        self._page = ""
        self._shown: RunView | None = None
        self._show_at = 0.0
        self._has_stopped = asyncio.Event()
        self._joined: frozenset[str] = frozenset()
        self._closed: asyncio.Queue[Closed] = asyncio.Queue()
        self.stopping = Stopping()
        self._estimator = LinkEstimator(link.to_trainers.send)
        link.to_front.divert(MemoryEstimate, self._estimator.answer)
        self.ledger = Ledger(history)
        self.behaviors = BehaviorTable(options, self.ledger, self._estimator, link.to_trainers.send)
        ids = None if session_key is None else SessionIds(session_key, run_id)
        self.sessions = SessionTable(self.behaviors, self.ledger, generation=generation, ids=ids)
        self.store = PolicyStore()
        self.metrics = make_metrics(self._service.return_buckets or EPISODE_RETURN)
        tables = self.behaviors, self.sessions, self.ledger, self.store
        self.run_status = RunStatus(*tables, self._service, run_id=run_id, generation=generation)
        self._updates = UpdateWatch()
        self.control = RunControl(
            link.to_trainers.send,
            is_ending=self.stopping.asked.is_set,
            request_stop=self.stopping.ask_anywhere,
            send=link.to_front.send,
            on_changed=self.run_status.note_changes,
        )
        link.to_front.divert(Answer, self.control.answer)

    def restore(self, books: Mapping[str, Any], status: Mapping[str, Any], trained: Collection[str]) -> None:
        """Restores the service's part of a run state before the service starts.

        Args:
            books: State of the behaviors, the ledger and the sessions.
            status: Clocks, curves and the last statistics of the trainers.
            trained: Behaviors whose trainers have a state.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError, WireError: The state is invalid.
            UserError: The run file no longer has one of the behaviors.
        """
        restore(books, self.behaviors, self.sessions, self.ledger, trained)
        self.run_status.load_state_dict(status)

    def keep_received(self, received: ReceivedSteps) -> None:
        """Books what was acked after the restored state, and records from now on what is acked. Call `restore` first.

        Args:
            received: The record in the run folder.

        Raises:
            UserError: The record cannot be written.
        """
        found = received.read()
        if found is not None:
            lost = self.sessions.recover(found)
            for behavior, steps in lost.items():
                log.warning("acked_steps_lost", behavior=behavior, steps=steps, cause="acked after the last run state")
        names = [behavior.name for behavior in self.behaviors.all()]
        received.begin(names, self.ledger.received(), self.sessions.received())
        self.sessions.keep_record(received)

    @property
    def state(self) -> RunState:
        """The learner's current activity; callable from any thread."""
        stop = self.stopping.stop
        if stop is not None:
            return RunState.FAILED if stop.error is not None else RunState.DRAINING
        if self.control.is_paused:
            return RunState.PAUSED
        return RunState.TRAINING if self._trains and self.run_status.stats.trainers else RunState.WAITING

    @property
    def _is_over(self) -> bool:
        """Whether the run has ended by itself; callable from any thread."""
        stop = self.stopping.stop
        return stop is not None and stop.final and stop.error is None

    def view(self) -> RunView:
        """Returns the current status; callable from any thread."""
        tls, games = self._identity.security is not None, self._options.plays_games
        own = self._has_own_actors
        return self.run_status.run_view(
            self.state, self._address, tls=tls, games=games, page=self._page, has_own_actors=own
        )

    async def run(self, assignment: policy_pb2.Assignment | None, begin: Begin, display: Display) -> Served:
        """Serves until the run is asked to end, and returns how it ended.

        Args:
            assignment: First assignment of the actors.
            begin: Starts the trainers; receives the address of the learner and the link to the status page.
            display: Shows the run; closed at the end.

        Raises:
            UserError: An address is unavailable, or the trainers failed.
        """
        throttle_accept_errors(asyncio.get_running_loop())
        server = self._make_server(assignment)
        site = self._make_site(server)
        with contextlib.ExitStack() as listening:
            listening.enter_context(self.stopping.listening(takes_signals=self._takes_signals))
            if self._takes_signals:
                listening.enter_context(OperatorSignals(self.control, self._identity.audit).listening())
            await server.start(falls_back=self._falls_back)
            try:
                if site is not None:
                    await site.start()
                begin(*self._bound(server, site))
                with display:
                    await self._watch(display)
                    stop = await self._wind_down(server)
                    display.update(self.view(), now=True)
                closed = await self._close(stop)
            finally:
                self._estimator.close()
                self.control.close()
                await server.stop()
                if site is not None:
                    await site.stop(in_a_hurry=self.stopping.hurry.is_set(), is_over=self._is_over)
                self._identity.audit.close()
        stop = self.stopping.stop or stop  # ending the run may have failed too
        if stop.error is not None:
            raise stop.error
        if closed.fault:
            raise UserError(
                ExitCode.TRAINER_FAILED, f"the run ended with an error: {closed.fault}; the traceback is in the log"
            )
        return Served(stop.reason, closed.is_complete, stop.final, self._joined)

    def _bound(self, server: LearnerServer, site: StatusSite | None) -> tuple[BoundAddresses, str]:
        self._address = with_port(self._service.address, server.port)
        ca = self._service.identity_files.ca
        bound = BoundAddresses(
            self._address,
            "" if site is None else site.address,
            tls=self._identity.security is not None,
            ca="" if ca is None else str(ca.absolute()),
            token=self._token_path,
            page=self._service.page_address or "",
        )
        self._page = bound.page_url
        return bound, self._page

    @property
    def _token_path(self) -> str:
        """Path of the file with the operators' token; empty without one."""
        given = self._service.operator_token_file
        if given is not None:
            return str(Path(given).absolute())
        return "" if self._site is None else str((self._site.folder / TOKEN_FILE).absolute())

    async def _watch(self, display: Display) -> None:
        """Watches over the run until it is asked to end."""
        status, stopping, limit = self.run_status, self.stopping, self._service.max_wall_seconds
        meter = bottleneck_meter(self.sessions, self.behaviors) if self._trains else None
        while not stopping.asked.is_set():
            status.note_steps()
            if meter is not None:
                live = self.sessions.live()
                is_preparing = bool(live) and not any(session.accounts for session in live)
                found = meter.update(self.state, status.busy_seconds, is_preparing=is_preparing)
                status.note_bottleneck(found)
            if limit is not None and status.command_seconds >= limit:
                stopping.ask("max_wall_seconds", final=True)
            elif self.behaviors.has_ended_training:
                stopping.ask("max_steps", final=True)
            self._show()
            if display.due:
                display.update(self.view())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.asked.wait(), _WATCH_SECONDS)

    def _show(self) -> None:
        """Sends the trainers the current view if it is due or the state has changed."""
        now = time.monotonic()
        if now < self._show_at and self._shown is not None and self._shown.state is self.state:
            return
        self._show_at, self._shown = now + _SHOWN_SECONDS, self.view()
        self._link.to_trainers.send(Seen(self._shown))
        trains = self._trains and self._shown.state is RunState.TRAINING
        for state, behavior in zip(self._shown.behaviors, self.behaviors.all(), strict=False):
            goes_on = trains and state.env_steps_trained < state.max_steps
            self._updates.look(state, behavior.settings, state.actor_books["outstanding"], trains=goes_on)

    async def _wind_down(self, server: LearnerServer) -> Stop:
        """Stops the turns after the current update, and says goodbye to the actors."""
        stopping = self.stopping
        stop = stopping.stop or Stop(SIGNAL, final=False)
        if stop.reason == SIGNAL:
            self._identity.audit.note("stop", Requester("signal", stopping.signal_name))
        saves = "the current update finishes and everything is saved; " if self._trains else ""
        signalled = {"action": f"{saves}{_SECOND_SIGNAL}"} if stop.reason == SIGNAL else {}
        log.info("stopping", reason=stop.reason, final=stop.final, **signalled)
        self._show()
        self._joined = frozenset(session.actor_name for session in self.sessions.live())
        self._link.to_trainers.send(StopTurns())
        is_left = stop.final and (stop.reason == BY_OPERATOR or not self._service.keep_actors)
        await server.drain(
            final=is_left,
            seconds=self._service.drain_seconds,
            hurry=stopping.hurry,
            has_failed=stop.error is not None,
            reason=stop.reason,
        )
        if stop.final and not is_left:
            self.sessions.end_all()  # the actors wait for another run, and return to none of this one
        try:
            await asyncio.wait_for(self._has_stopped.wait(), _STOP_SECONDS)
        except TimeoutError:
            log.error("update_not_over", waited_seconds=_STOP_SECONDS, action="the last run state is unchanged")
        self.run_status.note_steps()
        return stopping.stop or stop  # the last update may have failed

    async def _close(self, stop: Stop) -> Closed:
        """Asks the parts of the run to save what they keep, and waits until they have."""
        summaries = {
            behavior.name: BehaviorSummary.of(
                self.run_status.behavior_state(behavior),
                self.run_status.milestones(behavior.name),
                untimed_steps=self.ledger.untimed_steps(behavior.name),
            )
            for behavior in self.behaviors.all()
        }
        if self._trains and summaries and (names := self.behaviors.undeclared()):
            log.info(
                "behaviors_not_declared", behaviors=names, note="no actor declared them: their settings had no effect"
            )
        fault = "" if stop.error is None else stop.error.message
        self._link.to_trainers.send(Close(stop.reason, self.view(), summaries, fault))
        return await self._closed.get()

    def _take_ending(self, message: Ending) -> None:
        match message:
            case Finished(reason):
                self.stopping.ask(reason, final=True)
            case Failed(exit_code, text):
                reason = "trainer_failed" if self._trains else "error"
                self.stopping.ask(reason, final=False, error=UserError(exit_code, text))
            case Stopped():
                self._has_stopped.set()
                self.control.close()
            case Closed():
                self._closed.put_nowait(message)

    def _make_server(self, assignment: policy_pb2.Assignment | None) -> LearnerServer:
        run = RunInfo.from_options(
            self._options,
            run_id=self._run_id,
            generation=self._generation,
            run_seed=self._seed,
            server_version=version("rollcast"),
            assignment=assignment,
        )
        return LearnerServer(
            address=self._service.address,
            settings=self._service,
            behaviors=self.behaviors,
            sessions=self.sessions,
            ledger=self.ledger,
            store=self.store,
            run=run,
            metrics=self.metrics,
            link=self._link,
            status=self.run_status,
            on_end=self._take_ending,
            task=self._task,
            snapshots=self._snapshots,
            identity=self._identity,
        )

    def _make_site(self, server: LearnerServer) -> StatusSite | None:
        """Creates the status site without starting it, and connects the metrics to all parts."""
        if self._site is None:
            return None
        scrape = Scrape(
            view=self.view,
            run_status=self.run_status,
            sessions=self.sessions,
            server=server,
            checkpoint_seconds=self._service.checkpoint_seconds,
            started_at=time.time() - self.run_status.uptime_seconds,
            is_over=lambda: self._is_over,
            folder=self._site.folder,
        )
        self.metrics.watch(scrape.snapshot)
        hooks = RunHooks(
            self.control,
            self.view,
            self.sessions,
            self.metrics,
            rates=server.rates,
            is_serving=lambda: server.is_serving,
            history=self.run_status.history,
            version=version("rollcast"),
            about=self._site.about,
        )
        return StatusSite(self._service, self._token, hooks, self._identity, falls_back=self._site.falls_back)


def make_metrics(return_buckets: tuple[float, ...]) -> LearnerMetrics:
    """Returns the metrics of a learner, labelled with its versions."""
    metrics = LearnerMetrics(return_buckets=return_buckets)
    metrics.set_build(version("rollcast"), os.environ.get(REVISION_VARIABLE, "unknown"), PROTOCOL_REVISION)
    return metrics


def throttle_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Logs connections that a loop cannot accept once in a while; asyncio reports each attempt, thousands a second."""
    throttle = Throttle()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
            return
        left_out = throttle.admit(error.errno)
        if left_out is not None:
            log.error("connections_not_accepted", error=error.strerror, left_out=left_out)

    loop.set_exception_handler(handle)
