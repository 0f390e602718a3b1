"""The processes of a run: one learner on fixed ports, and actors."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, wait_until
from tests.nightly.chaos import match
from tests.nightly.chaos.faulty_actor import VARIABLE as FAULTS
from tests.nightly.chaos.injection import CallFault, FaultFile, Kind

ENV = "tests.nightly.chaos.counted:make"
CARTPOLE, MATCH = "CartPole", "Match"
FIRST_ACTORS = 3
FEWEST_ACTORS = 2
"""The least number of acting actors; none is stopped, removed or killed below it."""
KILLED = -signal.SIGKILL
MOST_STARTING_SECONDS = 4.0
START_SECONDS = 240.0
"""Time limit for starts and returns, for busy machines: five processes of Python import at once."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The learner's ports, the same for every start, and the port of the proxy to which actors connect."""

    actors: int
    http: int
    proxy: int


@dataclass(slots=True, eq=False)
class Actor:
    """An actor's process.

    Attributes:
        name: As it calls itself; another process may have it too.
        child: The process.
        faults: Delivers faults of its calls.
        behavior: Behavior that it acts for.
        is_frozen: It got SIGSTOP.
        expected: The code it must end with once it was told to end, None while it must run.
    """

    name: str
    child: Child
    faults: FaultFile
    behavior: str = CARTPOLE
    is_frozen: bool = False
    expected: int | None = None


class Fleet:
    """Starts, stops and ends them, and knows how each should have ended.

    Args:
        processes: Starts and, in the end, kills.
        run_file: Of the learner.
        ports: Of the learner.
        generator: Draws whom an event meets.
        looks: Returns how many statuses were seen so far.
        environment: Variables of all processes.
    """

    def __init__(
        self,
        processes: Processes,
        run_file: Path,
        ports: Ports,
        generator: random.Random,
        *,
        looks: Callable[[], int],
        environment: Mapping[str, str],
    ) -> None:
        self._environment = dict(environment)
        self._processes = processes
        self._run_file = run_file
        self._ports = ports
        self._generator = generator
        self._looks = looks
        self._looks_before = 0
        self._names = 0
        self.actors: list[Actor] = []
        self.learners: list[tuple[LearnerProcess, int]] = []
        self.learner = learner = self._start_learner()
        self.learner_is_frozen = False
        wait_until((learner.folder / "address.json").exists, "it listens", seconds=START_SECONDS, said=learner.said)
        self.add_actor(behavior=MATCH)
        for _ in range(FIRST_ACTORS):
            self.add_actor()

    def check_alive(self) -> None:
        """Fails if a process ended that should not have."""
        assert self.learner.is_running, f"the learner ended by itself\n{self.learner.said()}"
        for actor in self.acting(frozen=True):
            assert actor.child.is_running, f"an actor ended by itself\n{actor.child.said()}"

    def acting(self, *, frozen: bool = False) -> list[Actor]:
        """Returns the actors that must run; those that are stopped only on request."""
        return [actor for actor in self.actors if actor.expected is None and (frozen or not actor.is_frozen)]

    def restart_learner(self, number: signal.Signals, code: int) -> None:
        """Ends the learner by a signal once it was seen to serve, waits for its end, and starts it again."""
        self.thaw_learner()
        learner = self.learner
        self.wait_until_it_serves()
        learner.signal(number)
        self._end_learner(code)
        self.learner = self._start_learner()

    def wait_until_it_serves(self) -> None:
        """Waits until the present start of the learner was seen to serve, or it has ended."""
        learner = self.learner
        wait_until(lambda: self.serves or not learner.is_running, "it serves", seconds=START_SECONDS, said=learner.said)

    def kill_starting_learner(self) -> None:
        """Kills the learner, and again while it starts."""
        self.restart_learner(signal.SIGKILL, KILLED)
        time.sleep(self._generator.uniform(0.0, MOST_STARTING_SECONDS))
        self.learner.signal(signal.SIGKILL)
        self._end_learner(KILLED)
        self.learner = self._start_learner()

    def kill_trainers(self) -> None:
        """Kills the process of the trainers, and waits until the learner begins the run again."""
        self.thaw_learner()
        self.wait_until_it_serves()
        learner = self.learner
        deaths = len(learner.events("trainers_start_again"))
        os.kill(learner.trainers[0], signal.SIGKILL)
        wait_until(
            lambda: len(learner.events("trainers_start_again")) > deaths,
            "it starts other trainers",
            seconds=START_SECONDS,
            said=learner.said,
        )
        self._looks_before = self._looks()

    def freeze_learner(self) -> None:
        """Stops the learner's processes as a suspended machine would."""
        for pid in (self.learner.pid, *self.learner.trainers):
            os.kill(pid, signal.SIGSTOP)
        self.learner_is_frozen = True

    def thaw_learner(self) -> None:
        """Resumes the learner; repeated calls are harmless."""
        if self.learner_is_frozen:
            for pid in (self.learner.pid, *self.learner.trainers):
                os.kill(pid, signal.SIGCONT)
            self.learner_is_frozen = False

    def add_actor(self, name: str | None = None, behavior: str = CARTPOLE) -> Actor:
        """Starts an actor of a behavior, under a new name or one that exists."""
        if name is None:
            name = f"chaos-{self._names}"
            self._names += 1
        number = len(self.actors)
        what: tuple[str, ...] = ("pettingzoo", "--env", match.MODULE, *match.OPTIONS)
        if behavior != MATCH:
            what = ("gym", "--env", ENV, "--num-envs", "8", "--behavior", CARTPOLE)
        options = ("--learner", f"127.0.0.1:{self._ports.proxy}", "--name", name, "--log-format", "json")
        path = self._processes.folder / f"{name}-{number}.faults"
        child = self._processes.python(
            f"{name}-{number}",
            *("-m", "tests.nightly.chaos.faulty_actor", *what, *options),
            environment={**self._environment, FAULTS: str(path)},
        )
        actor = Actor(name, child, FaultFile(path), behavior)
        self.actors.append(actor)
        return actor

    def kill_actor(self) -> None:
        """Kills an actor and starts another process under its name."""
        actor = self._anyone()
        actor.child.kill()
        actor.expected = KILLED
        self.add_actor(actor.name, actor.behavior)

    def freeze_actor(self) -> Actor:
        """Stops the process of an actor."""
        actor = self._anyone()
        actor.child.signal(signal.SIGSTOP)
        actor.is_frozen = True
        return actor

    def thaw(self, actor: Actor) -> None:
        """Resumes a stopped actor; repeated calls are harmless."""
        if actor.is_frozen:
            actor.child.signal(signal.SIGCONT)
            actor.is_frozen = False

    def fail_call(self, fault: CallFault) -> None:
        """Lets a call of an actor fail."""
        self._anyone().faults.send(fault)

    @property
    def kills(self) -> int:
        """Returns how many processes were killed: actors, and the actors that a killed learner had."""
        actors = sum(actor.expected == KILLED for actor in self.actors)
        return actors + len(self.actors) * sum(code == KILLED for _, code in self.learners)

    def injected(self) -> list[Kind]:
        """Returns the kinds of the faults of calls that happened."""
        return [kind for actor in self.actors for kind in actor.faults.injected()]

    def pids(self) -> dict[str, list[int]]:
        """Returns the ids of the running processes, by role."""
        found: dict[str, list[int]] = {"learner": [self.learner.pid] if self.learner.is_running else []}
        found["trainers"] = self.learner.trainers
        for actor in self.actors:
            if actor.child.is_running:
                found.setdefault(actor.behavior, []).append(actor.child.pid)
        return found

    def running_pids(self) -> list[int]:
        """Returns the ids of the processes that run and are not stopped."""
        pids = [actor.child.pid for actor in self.actors if actor.child.is_running and not actor.is_frozen]
        if not self.learner_is_frozen:
            pids += [self.learner.pid, *self.learner.trainers]
        return pids

    def replace_actor(self) -> Actor:
        """Stops an actor and starts another process under its name, as an orchestrator that lost sight of it would."""
        actor = self.freeze_actor()
        self.add_actor(actor.name, actor.behavior)
        return actor

    def remove_actor(self, actor: Actor | None = None) -> None:
        """Asks an actor to end; one that plays matches only if it is given."""
        if actor is None:
            if len(self.acting()) <= FEWEST_ACTORS:
                self.add_actor()
            actor = self._generator.choice([each for each in self.acting() if each.behavior == CARTPOLE])
        # A signal during its start ends it with another code.
        wait_until(actor.child.err, f"{actor.name} has started", seconds=START_SECONDS, said=actor.child.said)
        actor.child.signal(signal.SIGTERM)
        actor.expected = 0

    def expect_the_end(self) -> None:
        """Expects that all processes end with code 0, because the run was drained."""
        for actor in self.acting(frozen=True):
            actor.expected = 0

    def wait_for_the_end(self) -> None:
        """Waits until everybody has ended, and checks how."""
        self._end_learner(0)
        for actor in self.actors:
            code = actor.child.wait()
            assert code == actor.expected, f"{actor.name} should end with {actor.expected}\n{actor.child.said()}"
            assert TRACEBACK not in actor.child.err() + actor.child.out(), actor.child.said()
            if code == 0:
                check_last_books(actor)

    def _anyone(self) -> Actor:
        return self._generator.choice(self.acting())

    @property
    def serves(self) -> bool:
        """Returns whether the present start of the learner was seen to serve."""
        return self._looks() > self._looks_before

    def _start_learner(self) -> LearnerProcess:
        self._looks_before = self._looks()
        ports = self._ports
        options = ["--resume=auto", "--set", f"rollcast.http_address=127.0.0.1:{ports.http}"]
        return self._processes.learner(self._run_file, *options, port=ports.actors, environment=self._environment)

    def _end_learner(self, code: int) -> None:
        learner = self.learner
        wait_until(lambda: not learner.is_running, "the learner ends", said=learner.said)
        self.learners.append((learner, learner.wait()))
        assert learner.wait() == code, f"it should end with {code}\n{learner.said()}"
        assert TRACEBACK not in learner.err() + learner.out(), learner.said()


def check_last_books(actor: Actor) -> None:
    """Checks what an actor said last of its steps."""
    told: list[dict[str, Any]] = actor.child.events("books")
    for books in told[-1:]:
        fates = books["open"] + books["unacked"] + books["acked"]
        fates += sum(books["discarded"].values()) + sum(books["dropped"].values())
        assert books["produced"] == fates, f"the last books of {actor.name} do not balance: {books}"
