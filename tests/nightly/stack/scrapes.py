"""Reads what the learner exports, again and again while it runs."""

import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.exposition import Samples, samples

PREFIX = "rollcast_learner_"


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of /metrics: samples by name and labels; the prefix of names is left out."""

    samples: Samples = field(repr=False)

    def values(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Returns the samples of a metric by their labels."""
        return {labels: value for (key, labels), value in self.samples.items() if key == PREFIX + name}

    def total(self, name: str) -> float:
        """Returns the sum of a metric's samples."""
        return sum(self.values(name).values())

    def label(self, name: str, label: str) -> str:
        """Returns a label of a metric that has one sample."""
        (labels,) = self.values(name)
        return dict(labels)[label]

    def imbalance(self) -> float:
        """Returns how many received steps the ledger cannot account for."""
        placed = ("env_steps_trained_total", "env_steps_dropped_total", "env_steps_queued", "env_steps_lost_total")
        return self.total("env_steps_received_total") - sum(self.total(name) for name in placed)


def scrape(port: int) -> Scrape:
    """Reads /metrics once.

    Raises:
        OSError: No one answered.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return Scrape(samples(answer.read()))


class Watcher:
    """Scrapes a learner continuously in a thread and keeps the values for the tests.

    Attributes:
        begin: The first scrape that has seen 100 episodes, whose mean it has.
        last: The newest scrape.
        unbalanced: What the ledger could not account for, in each scrape where that was anything.
        number: How many scrapes there were.
    """

    def __init__(self, port: int, pause_seconds: float = 0.25) -> None:
        self._port = port
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.begin: Scrape | None = None
        self.last: Scrape | None = None
        self.unbalanced: list[float] = []
        self.number = 0

    def __enter__(self) -> Self:
        """Starts to scrape."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._pause_seconds):
            try:
                found = scrape(self._port)
            except (OSError, urllib.error.URLError):
                continue  # not there yet, or being stopped
            self.last = found
            self.number += 1
            if found.imbalance() != 0:
                self.unbalanced.append(found.imbalance())
            if self.begin is None and found.total("episodes_total") >= 100 and found.values("episode_return_mean"):
                self.begin = found
