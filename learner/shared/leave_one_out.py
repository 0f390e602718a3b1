"""Means that no single source of values decides."""

from __future__ import annotations

import heapq
import math
import statistics
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from learner.shared.saved_values import count, numbers, text

LEAST_OWN: Final = 10
"""Least number of the newest values of a source that its own mean has, if there are so many."""
OWN_ERRORS: Final = 3.0
"""Standard errors by which the own mean of an honest source may be too low by chance."""
MAX_SOURCES: Final = 1024
"""Most sources whose values are kept; the one that was silent longest is forgotten first."""


class Source(NamedTuple):
    """Names the origin of a value.

    Attributes:
        principal: Name of the actor's principal; empty if actors are not identified.
        place: The actor's place in the run.
    """

    principal: str = ""
    place: int = 0


class SourcedValues:
    """Keeps the newest values of each source.

    Each source has its own values, so that one that sends very many does not displace those of the others.

    Args:
        kept: Number of values in a mean, and of those kept of each source.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: OrderedDict[Source, deque[tuple[int, float]]] = OrderedDict()
        self._count = 0

    def append(self, value: float, source: Source) -> None:
        """Adds a value."""
        self._count += 1
        self._values.setdefault(source, deque(maxlen=self._kept)).append((self._count, value))
        self._values.move_to_end(source)
        if len(self._values) > MAX_SOURCES:
            self._values.popitem(last=False)

    def clear(self) -> None:
        """Forgets all values."""
        self._values.clear()

    def least_mean(self, present: Collection[Source]) -> float:
        """Returns the smallest mean of the newest values of the present sources without any one of them.

        Sources of several principals count as one for each principal. Without one of N, the newest (N - 1) / N of the number
        of a mean count: those of the same time, if all send alike, so that the answer comes no later than the mean.

        One principal may have any number of sources of its own making. If there is one principal, the result is therefore no
        more than the own mean of any source, plus `OWN_ERRORS` standard errors.

        Args:
            present: The present sources, including those that have no value yet.

        Returns:
            The mean; infinity with fewer than two sources, minus infinity if only one has values, or if all are of one
                principal and one of them has none.
        """
        groups = _groups(present)
        if len(groups) < 2:
            return math.inf
        runs = [
            [(number, key, value) for number, value in reversed(self._values[source])]
            for key, sources in groups.items()
            for source in sources
            if source in self._values
        ]
        newest_first = heapq.merge(*runs, key=lambda entry: entry[0], reverse=True)
        read: list[tuple[int, Hashable, float]] = []
        while len(read) < self._kept and (entry := next(newest_first, None)) is not None:
            read.append(entry)
        # Without a source that has none of these values, the mean is that of all of them.
        outs = [None, *dict.fromkeys(key for _, key, _ in read)]
        others = math.ceil(self._kept * (len(groups) - 1) / len(groups))
        least = min(_mean_without(out, self._kept if out is None else others, read, newest_first) for out in outs)
        if len({source.principal for source in present}) > 1:
            return least
        wanted = max(LEAST_OWN, math.ceil(self._kept / len(groups)))
        return min(least, *(self._own_mean(source, wanted) for source in set(present)))

    def _own_mean(self, source: Source, wanted: int) -> float:
        """Returns the largest mean that a source's newest values are evidence for; minus infinity without values."""
        values = [value for _, value in self._values.get(source, ())][-wanted:]
        if not values:
            return -math.inf
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        return statistics.fmean(values) + OWN_ERRORS * error

    def state_dict(self) -> dict[str, Any]:
        """Returns the values and their sources, oldest first, as plain values."""
        entries = sorted((number, source, value) for source, kept in self._values.items() for number, value in kept)
        return {
            "principals": [source.principal for _, source, _ in entries],
            "places": [source.place for _, source, _ in entries],
            "values": [value for _, _, value in entries],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what `state_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        values = numbers(state, "values")
        principals = [text({"principals": name}, "principals") for name in state["principals"]]
        places = [count({"places": place}, "places") for place in state["places"]]
        self.clear()
        for principal, place, value in zip(principals, places, values, strict=True):
            self.append(value, Source(principal, place))


def _groups(present: Collection[Source]) -> dict[Hashable, list[Source]]:
    """Returns the sources by principal if there are several principals, otherwise each by itself."""
    by_principal: defaultdict[Hashable, list[Source]] = defaultdict(list)
    for source in set(present):
        by_principal[source.principal].append(source)
    if len(by_principal) > 1:
        return dict(by_principal)
    return {source: [source] for source in set(present)}


def _mean_without(
    out: Hashable, wanted: int, read: list[tuple[int, Hashable, float]], rest: Iterator[tuple[int, Hashable, float]]
) -> float:
    """Returns the mean of the newest values of all groups but one.

    Args:
        out: The group; None for none.
        wanted: Most values.
        read: The newest values, the newest first; grows as more are read.
        rest: The values before them.
    """
    total, number, at = 0.0, 0, 0
    while number < wanted:
        if at == len(read):
            entry = next(rest, None)
            if entry is None:
                break
            read.append(entry)
        _, key, value = read[at]
        at += 1
        if key != out:
            total += value
            number += 1
    return total / number if number else -math.inf
