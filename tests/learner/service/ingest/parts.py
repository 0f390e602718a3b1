"""The parts of the ingest with a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from learner.link.channel import Link, Transport
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.openings import Opened, Opening, Resumption
from learner.service.ingest.session import ActorCounters, ActorSession
from learner.service.ingest.session_ids import SessionIds
from learner.service.ingest.sessions import SessionTable
from learner.service.policies.store import PolicyStore
from learner.service.run.run_status import RunStatus
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import ServiceSettings
from tests.coded_link import coded
from tests.learner.judging import accept
from tests.learner.link.far_side import Trainers, serve
from tests.learner.service.calls.samples import NAME, make_chunk, make_options, make_policy, make_spec

__all__ = ["NAME", "Parts", "make_chunk", "make_options", "make_policy", "make_spec", "open_default"]


class Parts:
    """Tables and books of one start of the learner.

    Attributes:
        link: To the trainers; what they say is carried out at once.
        trainers: What a test says in their place.
    """

    def __init__(self, options: RunOptions | None = None, *, generation: int = 1, transport: Transport = coded) -> None:
        self.now = 1000.0
        self.ledger = Ledger()
        self.link = Link(transport)
        self.trainers = Trainers(self.link)
        self.behaviors = BehaviorTable(options or make_options(), self.ledger, accept, self.link.to_trainers.send)
        self.sessions = SessionTable(
            self.behaviors,
            self.ledger,
            generation=generation,
            clock=lambda: self.now,
            ids=SessionIds(bytes(32), "run"),  # all starts of a test are of one run
        )
        serve(self.link, self.behaviors, self.ledger, self.sessions)

    def open(
        self,
        name: str = "actor",
        instance: str | None = None,
        resume: Resumption | None = None,
    ) -> Opened:
        """Opens a session."""
        return self.sessions.open(Opening(name, instance or f"instance of {name}", resume))

    def declared(self, session: ActorSession, name: str = NAME, **declaration: Any) -> Behavior:
        """Declares a behavior in a session."""
        team, agents = declaration.get("team", 0), declaration.get("agents", 1)
        behavior = self.behaviors.declare(make_spec(name), team, agents)
        self.sessions.declare(session, behavior, team, agents)
        return behavior

    def run_status(self, service: ServiceSettings, clock: Callable[[], float] | None = None) -> RunStatus:
        """Returns the picture of a run with these parts; its clock is theirs unless another is given."""
        return RunStatus(
            self.behaviors,
            self.sessions,
            self.ledger,
            PolicyStore(),
            service,
            run_id="run",
            generation=self.sessions.generation,
            clock=clock or (lambda: self.now),
        )


def open_default(**service: Any) -> RunOptions:
    """Returns a run file that accepts any behavior."""
    options = make_options(**service)
    return options.model_copy(update={"default_settings": options.behaviors[NAME]})


def report(**counters: Any) -> ActorCounters:
    """Returns an actor's report on behavior 0."""
    return ActorCounters(0, **counters)
