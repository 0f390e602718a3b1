"""Executes a plan against real processes and reports the results."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollcast.history import VARIABLE as HISTORY
from rollcast.tls import ClientSecurity

from learner.cli.operator import Operator
from learner.shared.exits import UserError
from tests.e2e.processes import Processes, processes_in, wait_until
from tests.e2e.runs import cartpole, small, write_run
from tests.nightly.chaos.checker.check import check_folder
from tests.nightly.chaos.checker.violations import report as report_of
from tests.nightly.chaos.counted import VARIABLE as COUNTED
from tests.nightly.chaos.counted import counted_steps
from tests.nightly.chaos.cuts import CutProxy
from tests.nightly.chaos.fleet import CARTPOLE, FIRST_ACTORS, KILLED, MATCH, START_SECONDS, Actor, Fleet, Ports
from tests.nightly.chaos.leftovers import left, marked
from tests.nightly.chaos.moments import check_histories, check_status_command
from tests.nightly.chaos.plan import Event, Plan, What
from tests.nightly.chaos.resources import (
    MemoryWatch,
    SmallDisk,
    WallClock,
    descriptors,
    remove_clock_files,
    small_disk,
    take_descriptors,
)
from tests.nightly.chaos.scraper import Scraper, Seen
from tests.ports import reserve_ports

TARGET = 475.0
POLL_SECONDS = 0.05
PAUSED_SECONDS = 2.0
FROZEN_LEARNER_SECONDS = 20.0
DISK_MIB = 64
SPARE_DESCRIPTORS = 16
"""More than in the quiet start of the run: other files of logs and statistics."""
DESCRIPTORS_OF_ACTOR = 4
"""Descriptors that an actor takes in the learner, and one more while it reconnects."""
FAREWELL_SECONDS = 5.0
"""An actor that was replaced while it was stopped continues for so long beside its successor, and is then removed."""
SETTINGS = cartpole(
    hyperparameters={
        "batch_size": 512,
        "buffer_size": 2048,
        "num_epoch": 4,
        "learning_rate": 1.0e-3,
        "learning_rate_schedule": "linear",
        "beta": 0.0,
        "lambd": 0.9,
        "max_grad_norm": 0.5,
        "ratio": "joint",
    },
    time_horizon=64,
    max_steps=30_000_000,
    summary_freq=20_000,
)
PLAYED = small(
    trainer_type="poca",
    hyperparameters={"batch_size": 64, "buffer_size": 128, "num_epoch": 1},
    network_settings={"hidden_units": 16, "num_layers": 1},
    self_play={"save_steps": 256, "team_change": 1024, "swap_steps": 256, "window": 5},
    summary_freq=2000,
)
"""Of the matches of `tests.nightly.chaos.match`."""
MAX_LAGS = {CARTPOLE: 5, MATCH: 5}
"""Versions between acting and training: the trait of ppo and poca, and one more because updates and actors take turns."""
HISTORIES, STEPS = "histories", "steps"
UNTOLD_STEPS = 4096
"""Most steps that a killed process leaves in no book: those of its last second, which credit limits to two buffers."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run."""

    events: dict[str, int]
    injected: dict[str, int]
    learner_codes: list[int]
    actors: int
    seen: Seen
    memory_mib: dict[str, list[float]]
    descriptors: list[int]
    summary: dict[str, Any]

    def document(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self), indent=2)


def carry_out(plan: Plan, folder: Path, say: Callable[[str], None]) -> Report:
    """Runs a plan in a folder.

    Raises:
        AssertionError: Something that should never be was.
    """
    with marked() as mark:
        with _stage(folder) as (processes, disk, clock), CutProxy(port := reserve_ports(3)) as proxy:
            report = _Conductor(plan, processes, say, disk=disk, clock=clock, proxy=proxy, port=port).carry_out()
            remaining = left(mark)
        assert not remaining, f"processes are left over: {remaining}"
        assert not left(mark)
    violations = check_folder(folder / HISTORIES, MAX_LAGS)
    assert not violations, report_of(violations)
    return report


@contextlib.contextmanager
def _stage(folder: Path) -> Iterator[tuple[Processes, SmallDisk, WallClock]]:
    """Starts processes with run folders on a small disk."""
    with small_disk(folder / "results", DISK_MIB) as disk, processes_in(folder) as processes:
        try:
            yield processes, disk, WallClock(folder)
        finally:
            processes.end()
            for child in processes._children:
                remove_clock_files(child.pid)


class _Conductor:
    def __init__(
        self,
        plan: Plan,
        processes: Processes,
        say: Callable[[str], None],
        *,
        disk: SmallDisk,
        clock: WallClock,
        proxy: CutProxy,
        port: int,
    ) -> None:
        self._plan = plan
        self._say = say
        self._disk = disk
        self._clock = clock
        self._proxy = proxy
        self._ports = Ports(port, port + 1, proxy.port)
        limits = {"lease_seconds": plan.lease_seconds, "drain_seconds": 10.0, "checkpoint_seconds": 5.0}
        token = processes.folder / "operator"
        token.write_text("a-token-for-all-starts\n")
        settings = {**limits, "summary_seconds": 1.0, "operator_token_file": str(token)}
        run_file = write_run(processes.folder, {CARTPOLE: SETTINGS, MATCH: PLAYED}, **settings)
        self._scraper = Scraper(f"127.0.0.1:{self._ports.http}")
        seen = self._scraper.seen
        folder = processes.folder
        environment = {**clock.environment, HISTORY: str(folder / HISTORIES), COUNTED: str(folder / STEPS)}
        generator = random.Random(plan.seed)
        self._fleet = Fleet(
            processes, run_file, self._ports, generator, looks=lambda: seen.statuses, environment=environment
        )
        self._memory = MemoryWatch(self._fleet.pids)
        self._operator = Operator(f"127.0.0.1:{self._ports.http}", security=ClientSecurity(token_file=token))
        self._descriptors: list[int] = []
        self._answered = 0
        self._wait_for_training()
        self._began = time.monotonic()
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, str, Callable[[], object]]] = []
        self._done: dict[str, int] = {}
        for event in plan.events:
            name = event.what.name.lower() if event.call is None else f"{event.call.kind} of {event.call.method}"
            self._at(event.at_seconds, name, self._deed(event))
        self._at(plan.events[0].at_seconds - POLL_SECONDS, "the quiet start ends", self._end_quiet_start)

    def carry_out(self) -> Report:
        fleet = self._fleet
        with self._scraper as scraper, self._memory:
            while self._agenda or self._now < self._plan.seconds:
                self._do_what_is_due(scraper)
                fleet.check_alive()
                assert not scraper.seen.faults, "\n".join(scraper.seen.faults)
                time.sleep(POLL_SECONDS)
            self._settle(scraper)
            self._check_descriptors()
            self._operator.drain(final=True)
            fleet.expect_the_end()
            fleet.wait_for_the_end()
        assert not scraper.seen.faults, "\n".join(scraper.seen.faults)
        assert self._answered, "the learner was down at each look at its books"
        assert not self._memory.faults(), f"memory grew to {self._memory.faults()}"
        codes = [code for _, code in fleet.learners]
        summary = json.loads((fleet.learner.folder / "summary.json").read_text())
        for books in summary["behaviors"].values():
            check_summary(books)
        counted = counted_steps(fleet.learner.folder.parent.parent / STEPS)
        check_taken(summary["behaviors"][CARTPOLE], counted, killed=fleet.kills)
        injected = dict(Counter(map(str, fleet.injected())))
        memory = self._memory.shown()
        return Report(self._done, injected, codes, len(fleet.actors), scraper.seen, memory, self._descriptors, summary)

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _at(self, seconds: float, what: str, deed: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (seconds, next(self._order), what, deed))

    def _later(self, seconds: float, what: str, deed: Callable[[], object]) -> None:
        self._at(self._now + seconds, what, deed)

    def _do_what_is_due(self, scraper: Scraper) -> None:
        while self._agenda and self._agenda[0][0] <= self._now:
            _, _, what, deed = heapq.heappop(self._agenda)
            seen = scraper.seen
            self._say(f"{self._now:6.1f} s  return {seen.last_return:5.1f}  {len(seen.connected)} actors  {what}")
            began = time.monotonic()
            deed()
            # A deed may wait, as for a learner that starts; the schedule continues afterwards, so that faults keep their
            # distances.
            self._began += time.monotonic() - began
            self._done[what] = self._done.get(what, 0) + 1

    def _wait_for_training(self) -> None:
        """Waits until both behaviors are trained and saved: the time of the schedule begins with training."""
        learner = self._fleet.learner

        def trains() -> bool:
            self._fleet.check_alive()
            with contextlib.suppress(UserError):  # a busy machine
                has_trained = learner.behavior(CARTPOLE).version > 0 and learner.behavior(MATCH).version > 0
                return has_trained and (learner.folder / "run_state.pt").exists()
            return False

        wait_until(trains, "both behaviors are trained", seconds=START_SECONDS, said=learner.said)

    def _end_quiet_start(self) -> None:
        self._memory.is_quiet = False
        self._descriptors.append(descriptors(self._fleet.learner.pid))

    def _check_descriptors(self) -> None:
        """Checks that the learner holds no more descriptors than at the quiet start, for the actors that it has."""
        actors = len(self._fleet.acting()) - FIRST_ACTORS - 1
        limit = self._descriptors[0] + SPARE_DESCRIPTORS + DESCRIPTORS_OF_ACTOR * max(0, actors)
        used = wait_until(
            lambda: count if (count := descriptors(self._fleet.learner.pid)) <= limit else 0,
            f"the learner holds at most {limit} descriptors",
            said=lambda: f"it holds {descriptors(self._fleet.learner.pid)}",
        )
        self._descriptors.append(used)

    def _deed(self, event: Event) -> Callable[[], object]:
        fleet, call = self._fleet, event.call
        if call is not None:
            return lambda: fleet.fail_call(call)
        deeds: dict[What, Callable[[], object]] = {
            What.KILL_LEARNER: lambda: self._restart(lambda: fleet.restart_learner(signal.SIGKILL, KILLED)),
            What.END_LEARNER: lambda: self._restart(lambda: fleet.restart_learner(signal.SIGTERM, 0)),
            What.KILL_STARTING: lambda: self._restart(fleet.kill_starting_learner),
            What.KILL_TRAINERS: lambda: self._restart(fleet.kill_trainers),
            What.CUT: self._proxy.cut,
            What.STALL: lambda: self._for(event.amount, "flow", self._proxy.stall, self._proxy.flow),
            What.FILL_DISK: lambda: self._fill_disk(event.amount),
            What.TAKE_DESCRIPTORS: lambda: self._take_descriptors(event.amount),
            What.SET_CLOCK: lambda: self._clock.set(event.amount),
            What.FREEZE_LEARNER: self._freeze_learner,
            What.KILL_ACTOR: fleet.kill_actor,
            What.FREEZE_ACTOR: lambda: self._thaw_later(fleet.freeze_actor()),
            What.REPLACE_ACTOR: lambda: self._thaw_later(fleet.replace_actor(), leaves=True),
            What.ADD_ACTOR: fleet.add_actor,
            What.REMOVE_ACTOR: fleet.remove_actor,
            What.PAUSE: self._pause,
            What.SAVE: lambda: self._ask(self._operator.save_checkpoint),
            What.CHECK_BOOKS: self._check_books,
        }
        return deeds[event.what]

    def _restart(self, restart: Callable[[], object]) -> None:
        """Restarts the learner with room on its disk, without which it does not start, and says so."""
        self._disk.free()
        self._proxy.flow()
        restart()

    def _for(self, seconds: float, name: str, begin: Callable[[], object], end: Callable[[], object]) -> None:
        begin()
        self._later(seconds, name, end)

    def _fill_disk(self, seconds: float) -> None:
        self._fleet.wait_until_it_serves()  # without room it does not start, and says so
        self._for(seconds, "free_disk", self._disk.fill, self._disk.free)

    def _take_descriptors(self, seconds: float) -> None:
        self._fleet.wait_until_it_serves()
        learner = self._fleet.learner
        self._later(seconds, "give_descriptors", take_descriptors(learner.pid))

    def _freeze_learner(self) -> None:
        self._fleet.wait_until_it_serves()  # faults that wait for that would wait for the thaw, which comes after them
        self._fleet.freeze_learner()
        seconds = FROZEN_LEARNER_SECONDS * min(1.0, self._plan.seconds / 600)
        self._later(seconds, "thaw_learner", self._fleet.thaw_learner)

    def _thaw_later(self, actor: Actor, *, leaves: bool = False) -> None:
        seconds = self._plan.frozen_seconds
        self._later(seconds, "thaw_actor", lambda: self._fleet.thaw(actor))
        if leaves:
            self._later(seconds + FAREWELL_SECONDS, "remove_replaced", lambda: self._fleet.remove_actor(actor))

    def _pause(self) -> None:
        self._ask(self._operator.pause)
        self._later(PAUSED_SECONDS, "resume", lambda: self._ask(self._operator.resume))

    def _ask(self, call: Callable[[], object]) -> None:
        """Retries an operator's action while the learner is down; a pause ends with its learner."""
        try:
            call()
        except UserError as error:
            self._say(f"          not now: {error.message}")

    def _check_books(self) -> None:
        """Checks the books as they are now: those that an operator sees, and the histories of all processes so far."""
        folder = self._fleet.learner.folder.parent.parent
        self._answered += check_status_command(f"127.0.0.1:{self._ports.http}", folder / "operator")
        check_histories(folder / HISTORIES, MAX_LAGS, self._fleet.running_pids())

    def _settle(self, scraper: Scraper) -> None:
        """Waits until everybody who should be there is."""
        fleet = self._fleet
        self._disk.free()
        self._proxy.flow()
        self._clock.set(0)
        fleet.thaw_learner()
        for actor in fleet.acting(frozen=True):
            fleet.thaw(actor)
        names = sorted(actor.name for actor in fleet.acting())

        def all_here() -> bool:
            fleet.check_alive()
            scraper.look()
            return scraper.seen.connected == names

        wait_until(all_here, f"these actors come back: {names}", seconds=START_SECONDS, said=lambda: str(scraper.seen))


def check_taken(summary: dict[str, Any], counted: int, *, killed: int) -> None:
    """Compares the steps in the last books of a behavior with those that its environments have counted.

    Raises:
        AssertionError: Steps were invented, more are missing than killed processes may leave, or some are outstanding
            although all actors have ended.
    """
    missing = counted - summary["env_steps_taken"]
    assert 0 <= missing <= UNTOLD_STEPS * killed, f"{counted} steps were taken, {killed} processes killed: {summary}"
    assert summary["actor_books"]["outstanding"] == 0, summary


def check_summary(summary: dict[str, Any]) -> None:
    """Checks the last books of a run.

    Raises:
        AssertionError: They do not balance.
    """
    ledger, actors = summary["ledger"], summary["actor_books"]
    fates = ledger["trained"] + sum(ledger["dropped"].values()) + ledger["queued"] + sum(ledger["lost"].values())
    assert ledger["received"] == fates, ledger
    given_up = sum(actors["discarded"].values()) + sum(actors["dropped"].values())
    assert summary["env_steps_taken"] == ledger["received"] + given_up + actors["outstanding"], summary
