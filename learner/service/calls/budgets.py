"""Limits the time of the event loop that a caller takes by calls of any method, so that none delays the others for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

import grpc
from rollcast.errors import TooManyCalls

from learner.service.calls.guard import Context, Handler, rewrapped, run_handler
from learner.service.calls.methods import BOUND
from learner.service.identity.access import CALLER

Result = TypeVar("Result")
Caller = tuple[str, str]

CONNECTION_SHARE: Final = 0.1
"""Seconds of the loop per second that the calls of one connection may take."""
CONNECTION_BURST_SECONDS: Final = 0.25
PRINCIPAL_SHARE: Final = 0.4
"""Seconds of the loop per second that all calls of one principal may take; of one host, if actors are not identified."""
PRINCIPAL_BURST_SECONDS: Final = 1.5
"""Enough for a fleet that returns to a learner at once."""
MAX_WAIT_SECONDS: Final = 10.0
"""Longest time that a call waits for its caller's budget; it is refused if that is not enough."""
MAX_BUDGETS: Final = 4096
_FIRST_SECONDS: Final = 0.0005
_NEWEST: Final = 0.1


class Budget:
    """The time that one caller may take: a share of all time, and a burst ahead of it.

    A call is charged with the mean of the last ones when it comes, and with its own time when it ends, so that many that
    come at once wait one after the other.

    Args:
        share: Seconds per second.
        burst_seconds: Time that the caller may be ahead before it must wait.
    """

    __slots__ = ("_at", "_burst_seconds", "_owed_seconds", "_share", "mean_seconds")

    def __init__(self, share: float, burst_seconds: float) -> None:
        self._share = share
        self._burst_seconds = burst_seconds
        self._at = 0.0
        self._owed_seconds = 0.0
        self.mean_seconds = _FIRST_SECONDS

    def wait_seconds(self, now: float) -> float:
        """Returns how long a call that comes now must wait, in seconds.

        Args:
            now: Monotonic seconds.
        """
        self._owed_seconds = max(0.0, self._owed_seconds - self._share * (now - self._at))
        self._at = now
        return max(0.0, self._owed_seconds - self._burst_seconds) / self._share

    def charge(self, seconds: float) -> None:
        """Adds time that was taken, or takes back what was too much."""
        self._owed_seconds += seconds

    def note(self, seconds: float) -> None:
        """Notes how long a call took."""
        self.mean_seconds += _NEWEST * (seconds - self.mean_seconds)

    def is_idle(self, now: float) -> bool:
        """Returns whether a new budget would be the same."""
        self.wait_seconds(now)
        return self._owed_seconds == 0.0


class CallBudgets(grpc.aio.ServerInterceptor):
    """Lets calls wait that their connection or their principal cannot pay; put it after the one that identifies callers.

    What a call costs is the processor time of its handler, without its waits. Chunks have a budget of their own
    (`learner.service.ingest.session`).

    Args:
        bounded: Called with the bound for each call that waits.
        clock: Returns monotonic seconds.
    """

    def __init__(self, bounded: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._bounded = bounded
        self._clock = clock
        self._budgets: dict[Caller, Budget] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler of a call."""
        handler = await continuation(handler_call_details)
        return None if handler is None else rewrapped(handler, lambda _, inner: self._paid(inner))

    def _paid(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> Any:
            budgets = self._of(context.peer())
            estimates = [budget.mean_seconds for budget in budgets]
            await self._wait(budgets)
            taken = 0.0

            def charge(seconds: float) -> None:
                nonlocal taken
                taken += seconds
                for budget in budgets:
                    budget.charge(seconds)

            try:
                return await _Measured(run_handler(inner, request, context), charge)
            finally:
                for budget, estimate in zip(budgets, estimates, strict=True):
                    budget.charge(-estimate)
                    budget.note(taken)

        return call

    async def _wait(self, budgets: tuple[Budget, ...]) -> None:
        """Waits until the budgets allow for a call.

        Raises:
            TooManyCalls: That takes too long.
        """
        now = self._clock()
        seconds = max(budget.wait_seconds(now) for budget in budgets)
        if seconds > MAX_WAIT_SECONDS:
            raise TooManyCalls(
                f"calls of this client take too much of the learner's time: {seconds:.0f} s are to wait, at most "
                f"{MAX_WAIT_SECONDS:g} are allowed",
                retry_after_seconds=MAX_WAIT_SECONDS,
                metadata={BOUND: "loop_time"},
            )
        for budget in budgets:
            budget.charge(budget.mean_seconds)
        if seconds > 0:
            self._bounded("loop_time")
            await asyncio.sleep(seconds)

    def _of(self, peer: str) -> tuple[Budget, ...]:
        """Returns the budgets of a caller's connection and of its principal."""
        principal = CALLER.get().name
        owner = ("principal", principal) if principal else ("host", peer.rpartition(":")[0])
        if len(self._budgets) > MAX_BUDGETS:
            now = self._clock()
            self._budgets = {key: budget for key, budget in self._budgets.items() if not budget.is_idle(now)}
        return (
            self._budgets.setdefault(("connection", peer), Budget(CONNECTION_SHARE, CONNECTION_BURST_SECONDS)),
            self._budgets.setdefault(owner, Budget(PRINCIPAL_SHARE, PRINCIPAL_BURST_SECONDS)),
        )


class _Measured(Awaitable[Result]):
    """Awaits something, and measures the processor time of its own steps; other tasks run between them."""

    def __init__(self, inner: Coroutine[Any, Any, Result], charge: Callable[[float], object]) -> None:
        self._inner = inner
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, Result]:
        steps = self._inner.__await__()
        step: Callable[[], Any] = steps.__next__
        while True:
            began = time.thread_time()
            try:
                awaited = step()
            except StopIteration as done:
                result: Result = done.value
                return result
            finally:
                self._charge(time.thread_time() - began)
            try:
                yield awaited
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - handed on
                step = partial(steps.throw, error)
            else:
                step = steps.__next__
