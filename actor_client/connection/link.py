"""The connection's interface for the stepping thread. Implements `actor_client.rollout.link.Link`."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, TypeVar

import structlog
from rollcast.history import open_history
from rollcast.specs import BehaviorSpec
from rollcast.tls import ClientSecurity
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.connection.behavior import BehaviorPort
from actor_client.connection.books import ActorSnapshot, BooksView
from actor_client.connection.connector import Connector
from actor_client.connection.declarations import Declaration, Declarations
from actor_client.connection.downlink import LoadPolicy
from actor_client.connection.endpoint import CLOSE_SECONDS
from actor_client.connection.session import RunInfo, Session
from actor_client.connection.state import ConnectionState
from actor_client.counts import RolloutCounts
from actor_client.exits import WORKER_THREADS, ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import exit_at_once
from actor_client.policy.graph import present_runs

Answer = TypeVar("Answer")

# Seconds for the acks of the last chunks when the actor closes.
FLUSH_SECONDS = 2.0
# Two workers, so that one can read while the other loads.
WORKERS = 2


RUN_SECONDS = 5.0
"""Time that an actor that is asked to stop waits for a policy that computes; a container has ten seconds to end."""
_LOOK_SECONDS = 1.0


class LearnerLink:
    """One actor's connection to its learner, in a background thread with its own event loop.

    gRPC is not used before `start`, so that environments can fork or spawn processes until then.

    Args:
        address: Address of the learner, HOST:PORT.
        actor_name: A readable name, which also keeps the actor_index stable; None generates one.
        load: Makes a policy from verified bytes; runs in a worker thread.
        client_version: Version for the learner's log.
        flush_seconds: Seconds for the acks of the last chunks when the actor closes.
        heartbeat: Updated while a thread waits in the link, since waiting for a learner is no fault.
        advice: The command's own next steps for errors, by the learner's reason.
        quiet_seconds: Seconds without warnings of a learner that has never answered.
        opponent: Name of the script that plays opponents; empty for none.
        security: How to connect.
        outage_bytes: Most bytes of chunks that are recorded while there is no connection; 0 = the actor waits.
        survives_refusals: A refused behavior does not end the actor: its declaration says why.

    Attributes:
        counts: Counters of the stepping thread.

    Example:
        link = LearnerLink(address, actor_name="actor", load=Policy.load, client_version="0.1.0")
        link.start()
        behavior = link.declare(spec, team=0, agents=1, timeout_seconds=None)
        ...  # step, while not link.stopping
        link.close()
    """

    def __init__(
        self,
        address: str,
        *,
        actor_name: str | None,
        load: LoadPolicy,
        client_version: str,
        flush_seconds: float = FLUSH_SECONDS,
        heartbeat: Heartbeat | None = None,
        advice: Mapping[str, str] = MappingProxyType({}),
        quiet_seconds: float = 0.0,
        opponent: str = "",
        security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
        outage_bytes: int = 0,
        survives_refusals: bool = False,
    ) -> None:
        self._outage_bytes = outage_bytes
        self._survives_refusals = survives_refusals
        self.counts = RolloutCounts()
        self._heartbeat = heartbeat or Heartbeat()
        self._address = address
        self._session = Session(actor_name, client_version, opponent)
        self._history = open_history(f"actor-{self._session.instance_id}")
        self._load = load
        self._flush_seconds = flush_seconds
        self._advice = advice
        self._quiet_seconds = quiet_seconds
        self._security = security
        self._thread = threading.Thread(target=self._work, name="rollcast-link", daemon=True)
        self._begun = threading.Event()
        self._stop_early = ""

    def start(self) -> None:
        """Starts the thread, which from now on connects and reconnects."""
        self._thread.start()
        self._begun.wait()
        if self._stop_early:
            self.request_stop(self._stop_early)

    @property
    def has_started(self) -> bool:
        """True once `start` has returned."""
        return self._begun.is_set()

    @property
    def run_seed(self) -> int:
        """The seed of the run; known after `open`."""
        return self._state.run.run_seed if self._state.run is not None else 0

    @property
    def actor_index(self) -> int:
        """Index of this actor in the run; known after `open`."""
        return self._state.run.actor_index if self._state.run is not None else 0

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Names in the run file of the learner that answered last; empty if any name is allowed."""
        return self._state.run.behaviors if self._state.run is not None else ()

    @property
    def stopping(self) -> bool:
        """True once the actor is asked to end: a final drain, a signal, or a fatal error."""
        return self._state.stopping if self.has_started else bool(self._stop_early)

    @property
    def stop_reason(self) -> str:
        """The reason for the end, for logs."""
        return self._state.stop_reason

    @property
    def error(self) -> ActorError | None:
        """The fatal error that ends the actor, if there is one."""
        return self._state.error

    @property
    def assignment(self) -> policy_pb2.Assignment | None:
        """The learner's present assignment; None before `open`. Each new one is another object."""
        return self._state.assignment

    @property
    def reconnects(self) -> int:
        """Number of times that the connection could not be made or was lost."""
        return self._state.reconnects

    @property
    def rejected(self) -> dict[str, int]:
        """Rows that the learner refused inside acks, by reason."""
        return dict(self._state.rejected)

    def books(self) -> dict[str, BooksView]:
        """Returns the books of the present session, by behavior."""
        return {name: behavior.view() for name, behavior in self._declarations.behaviors.copy().items()}

    def snapshot(self) -> ActorSnapshot:
        """Returns the actor's present counters and state; any thread may call it after `start`."""
        state = self._state
        behaviors = list(self._declarations.behaviors.values())
        return ActorSnapshot(
            rollout=state.rollout,
            connection=state.counts,
            books=sum((behavior.total() for behavior in behaviors), BooksView()),
            chunks_unacked=state.window.chunks,
            spooled_bytes=state.window.spooled_bytes,
            credit_steps=sum(behavior.credit_steps for behavior in behaviors),
            held=frozenset().union(*(behavior.held for behavior in behaviors)),
            is_uploading=state.uploading,
            is_subscribed=state.subscribed,
            policy_version=max((port.acting[1] for behavior in behaviors for port in behavior.ports), default=0),
            rejected=dict(state.rejected),
        )

    def open(self, timeout_seconds: float | None = None) -> RunInfo:
        """Waits for the first opening of the session.

        Raises:
            ActorError: The learner refused permanently or did not answer in time, or the actor was asked to stop.
        """
        return self._wait_for(lambda: self._state.run, timeout_seconds)

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> BehaviorPort:
        """Declares a behavior whose quotas the caller follows; waits for the answer, across reconnections.

        Args:
            spec: Observations and actions of the behavior.
            team: The team of the agents.
            agents: Number of agents that will act.
            timeout_seconds: Seconds to try; None = no limit.

        Raises:
            ActorError: The learner refused it or did not answer in time, or the actor was asked to stop.
        """
        declaration = self._declare(Declaration(spec, team, agents, follows_quota=True))
        return self._wait_for(lambda: declaration.port, timeout_seconds)

    def declare_soon(self, spec: BehaviorSpec, team: int, agents: int) -> Declaration:
        """Declares a behavior without waiting, for simulators whose other behaviors keep acting.

        Declaring a behavior id again reports another number of agents; its port stays the same.

        Returns: The declaration; its `port` is None until the learner answers; `wait` then returns. A refusal ends
        the actor, as with `declare`.
        """
        return self._declare(Declaration(spec, team, agents))

    def _declare(self, declaration: Declaration) -> Declaration:
        self._state.call_soon(lambda: self._declarations.add(declaration))
        return declaration

    def wake(self) -> None:
        """Makes the present or the next `wait` return; any thread may call it."""
        self._state.changed.set()

    def wait(self, timeout_seconds: float) -> None:
        """Waits for a change (credit, hold, policy, stop), or until the time is over."""
        self._heartbeat.beat()
        self._state.changed.wait(timeout_seconds)
        self._state.changed.clear()

    def on_change(self, listener: Callable[[], object]) -> None:
        """Calls a listener in place of `wait`, at each change; any thread may be the one that calls it."""
        self._state.changed.listener = listener

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Steps in the connection's own event loop, for simulators whose connections are in it; waits for the end.

        gRPC shares what wakes event loops: in another one, each message of a simulator would wake this one, too.

        Args:
            work: Steps until `stopping`; cancelled if the connection ends before.
        """
        with suppress(CancelledError):
            asyncio.run_coroutine_threadsafe(work(), self._state.loop).result()

    def request_stop(self, reason: str) -> None:
        """Asks the stepping thread to end; safe in any thread and in a signal handler."""
        if not self._begun.is_set():
            self._stop_early = reason
            return
        self._state.call_soon(lambda: self._state.stop(reason))

    def stop_after(self, seconds: float) -> None:
        """Asks the stepping thread to end after some seconds."""

        def begin() -> None:
            asyncio.get_running_loop().call_later(seconds, self._state.stop, f"{seconds:g} s have passed")

        self._state.call_soon(begin)

    def close(
        self,
        reason: session_pb2.CloseReason.ValueType = session_pb2.CLOSE_REASON_DONE,
        message: str = "",
    ) -> None:
        """Sends the remaining data, closes the session with the final books, and ends the thread within seconds.

        Args:
            reason: The reason for the end.
            message: Text for the learner's log.
        """
        if not self._thread.is_alive():
            return
        state = self._state

        def begin() -> None:
            state.close_reason, state.close_message = reason, message
            state.stop(message or "closed")
            state.closing.set()
            state.sendable.set()

        state.call_soon(begin)
        self._thread.join(self._flush_seconds + 3 * CLOSE_SECONDS)
        if self._thread.is_alive():
            state.call_soon(self._main.cancel)
            self._thread.join(CLOSE_SECONDS)
        if self._history is not None:
            totals = {name: asdict(behavior.total()) for name, behavior in self._declarations.behaviors.items()}
            self._history.write("closed", books=totals)

    def _wait_for(self, answer: Callable[[], Answer | None], timeout_seconds: float | None) -> Answer:
        """Waits for an answer.

        Raises:
            ActorError: No answer will arrive, or none arrived in time.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            found = answer()
            if found is not None:
                return found
            if self._state.error is not None:
                raise self._state.error
            if self._state.stopping:
                raise ActorError(ExitCode.OK, f"stopped before the learner answered: {self._state.stop_reason}")
            left_seconds = 1.0 if deadline is None else deadline - time.monotonic()
            if left_seconds <= 0:
                raise self._unreachable(timeout_seconds or 0.0)
            self.wait(min(left_seconds, 1.0))

    def _unreachable(self, seconds: float) -> ActorError:
        why = f" ({self._state.last_failure})" if self._state.last_failure else ""
        return ActorError(
            ExitCode.UNREACHABLE,
            f"the learner at {self._address} did not answer within {seconds:g} s{why}; "
            "check that it runs, check --learner, or wait longer with --connect-timeout",
        )

    def _work(self) -> None:
        """Runs in the connection's thread."""
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        """Maintains the connection until the actor closes or an error ends it."""
        self._state = state = ConnectionState(
            self._address, self._session, self.counts, self._history, outage_bytes=self._outage_bytes
        )
        self._declarations = Declarations(state, survives_refusals=self._survives_refusals)
        workers = ThreadPoolExecutor(WORKERS, thread_name_prefix=WORKER_THREADS)
        connector = Connector(
            state,
            self._declarations,
            self._load,
            workers,
            self._flush_seconds,
            advice=self._advice,
            quiet_seconds=self._quiet_seconds,
            security=self._security,
        )
        self._main = asyncio.ensure_future(connector.run())
        watch = asyncio.ensure_future(self._end_endless_run())
        self._begun.set()
        try:
            await self._main
        except ActorError as error:
            state.fail(error)
        except asyncio.CancelledError:
            structlog.get_logger().info("connection_cut", reason="closing took too long")
        except Exception as error:  # noqa: BLE001 - logged with its traceback, and ends the actor
            structlog.get_logger().exception("connection_failed")
            text = f"the connection failed with {type(error).__name__}: {error}; please report the traceback above"
            state.fail(ActorError(ExitCode.INTERNAL, text))
        finally:
            watch.cancel()
            workers.shutdown(wait=False, cancel_futures=True)
            state.changed.set()

    async def _end_endless_run(self) -> None:
        """Ends the process if a policy still computes long after the actor was asked to stop: nothing else would end its thread."""
        before: set[tuple[int, int]] = set()
        while True:
            present = present_runs() if self._state.stopping else set()
            if before & present:
                threading.Thread(target=self._give_up, name="rollcast-give-up", daemon=True).start()
                return
            before = present
            await asyncio.sleep(RUN_SECONDS if self._state.stopping else _LOOK_SECONDS)

    def _give_up(self) -> None:
        text = f"a policy has computed for more than {RUN_SECONDS:g} s, and the actor, which was asked to stop, ended without waiting for it"
        self.close(session_pb2.CLOSE_REASON_ERROR, text)
        structlog.get_logger().error("actor_ended", error=text, exit_code=ExitCode.POLICY_FAILED.value)
        exit_at_once(ExitCode.POLICY_FAILED)
