"""Scrapes a run once a second and checks the results."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from learner.cli.operator import Operator
from learner.shared.exits import UserError
from tests.e2e.books import check_books
from tests.e2e.state import State, state_of
from tests.nightly.chaos.counters import Counters, check_exposition, counters_of, parsed

T = TypeVar("T")

PERIOD_SECONDS = 1.0
ANSWER_SECONDS = 5.0


@dataclass(slots=True)
class Seen:
    """The results of the scrapes."""

    statuses: int = 0
    scrapes: int = 0
    unanswered: int = 0
    generations: list[int] = field(default_factory=list)
    best_return: float = 0.0
    last_return: float = 0.0
    connected: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Scraper:
    """Scrapes in its own thread within a `with` block.

    Args:
        page: Address of the HTTP port.
    """

    def __init__(self, page: str) -> None:
        self.seen = Seen()
        self._operator = Operator(page)
        self._page = f"http://{page}"
        self._status_counters = Counters()
        self._scraped_counters = Counters()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)

    def __enter__(self) -> Scraper:
        """Starts to scrape."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        self._stopped.set()
        self._thread.join()

    def look(self) -> State | None:
        """Scrapes now and returns None if the learner does not answer."""
        with self._lock:
            self._look(self._scrape)
            return self._look(self._ask)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            self.look()

    def _look(self, at: Callable[[], T]) -> T | None:
        try:
            return at()
        except (UserError, OSError, http.client.HTTPException):
            self.seen.unanswered += 1
        except AssertionError as error:
            self.seen.faults.append(f"{time.monotonic():.1f}: {error}")
        return None

    def _ask(self) -> State:
        status = state_of(self._operator)
        seen = self.seen
        seen.statuses += 1
        if not seen.generations or seen.generations[-1] != status.generation:
            seen.generations.append(status.generation)
        seen.connected = sorted(actor.actor_name for actor in status.actors if actor.connected)
        seen.last_return = max((row.mean_return_100 for row in status.behaviors), default=0.0)
        seen.best_return = max(seen.best_return, seen.last_return)
        check_books(status)
        self._status_counters.check(status.generation, counters_of(status))
        return status

    def _read(self, path: str) -> bytes:
        with urllib.request.urlopen(self._page + path, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - our own
            return bytes(answer.read())

    def _scrape(self) -> None:
        for row in json.loads(self._read("/api/status"))["behaviors"]:
            assert row["books"]["balanced"], f"the books of {row['name']} do not account for all steps taken: {row}"
        text = self._read("/metrics")
        if text:
            self.seen.scrapes += 1
            scraped = parsed(text)
            check_exposition(scraped)
            self._scraped_counters.check(scraped.generation, scraped.counters)
