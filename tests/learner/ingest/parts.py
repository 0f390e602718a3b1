"""The parts of the ingest, put together with a clock that tests move."""

from __future__ import annotations

from typing import Any

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.session import ActorCounters, ActorSession
from learner.ingest.sessions import Opened, Opening, Resumption, SessionTable
from learner.settings.options import RunOptions
from learner.trainers.judge import judge
from tests.learner.service.samples import NAME, make_chunk, make_options, make_policy, make_spec

__all__ = ["NAME", "Parts", "make_chunk", "make_options", "make_policy", "make_spec", "open_default"]


class Parts:
    """Tables and books of one start of the learner."""

    def __init__(self, options: RunOptions | None = None, *, generation: int = 1) -> None:
        self.now = 1000.0
        self.ledger = Ledger()
        self.behaviors = BehaviorTable(options or make_options(), self.ledger, judge)
        self.sessions = SessionTable(self.behaviors, self.ledger, generation=generation, clock=lambda: self.now)

    def open(self, name: str = "actor", instance: str | None = None, resume: Resumption | None = None) -> Opened:
        """Opens a session."""
        return self.sessions.open(Opening(name, instance or f"instance of {name}", resume))

    def declared(self, session: ActorSession, name: str = NAME, **declaration: Any) -> Behavior:
        """Declares a behavior in a session."""
        team, agents = declaration.get("team", 0), declaration.get("agents", 1)
        behavior = self.behaviors.declare(make_spec(name), team, agents)
        self.sessions.declare(session, behavior, team, agents)
        return behavior


def open_default(**service: Any) -> RunOptions:
    """A run file that takes any behavior."""
    options = make_options(**service)
    return options.model_copy(update={"default_settings": options.behaviors[NAME]})


def report(**counters: Any) -> ActorCounters:
    """An actor's report on behavior 0."""
    return ActorCounters(0, **counters)
