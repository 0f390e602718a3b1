"""Queries a Prometheus server over HTTP."""

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels and its values in time."""

    labels: dict[str, str]
    values: tuple[float, ...]

    def is_something(self) -> bool:
        """Returns whether any of its values is a number other than zero."""
        return any(math.isfinite(value) and value != 0 for value in self.values)


class Prometheus:
    """A Prometheus on this machine.

    Args:
        port: Where it listens.
    """

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def instant(self, query: str) -> list[Series]:
        """Returns what a query gives now.

        Raises:
            AssertionError: The query is refused; the message is Prometheus' own.
        """
        answer = self._ask("query", query=query)
        if answer["resultType"] == "scalar":
            return [Series({}, (float(answer["result"][1]),))]
        return [Series(one["metric"], (float(one["value"][1]),)) for one in answer["result"]]

    def last(self, query: str, *, seconds: float, step_seconds: float = 5.0) -> list[Series]:
        """Returns what a query gave over the last seconds."""
        now = time.time()
        answer = self._ask("query_range", query=query, start=now - seconds, end=now, step=step_seconds)
        return [Series(one["metric"], tuple(float(value) for _, value in one["values"])) for one in answer["result"]]

    def healthy_targets(self, job: str) -> list[str]:
        """Returns the addresses that Prometheus scrapes for a job without an error."""
        found = self._ask("targets", state="active")["activeTargets"]
        return sorted(
            target["labels"]["instance"]
            for target in found
            if target["labels"]["job"] == job and target["health"] == "up"
        )

    def _ask(self, path: str, **arguments: object) -> dict[str, Any]:
        try:
            address = f"{self._base}/{path}?{urllib.parse.urlencode(arguments)}"
            with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own, http
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.HTTPError as error:
            raise AssertionError(f"Prometheus refuses {arguments}: {error.read().decode()}") from None
