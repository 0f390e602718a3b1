"""Tests means that no single source decides."""

from __future__ import annotations

import math
import random
import statistics
from itertools import islice

import pytest

from learner.shared.leave_one_out import LEAST_OWN, MAX_SOURCES, OWN_ERRORS, Source, SourcedValues

HONEST, OTHER, HOSTILE = Source("lab", 0), Source("lab 2", 1), Source("evil", 2)


def values(*entries: tuple[float, Source], kept: int = 3) -> SourcedValues:
    """Returns values, oldest first."""
    made = SourcedValues(kept)
    for value, source in entries:
        made.append(value, source)
    return made


def test_each_source_is_left_out() -> None:
    """The result is the mean without the source whose omission lowers it most."""
    made = values((1.0, HONEST), (2.0, OTHER), (90.0, HOSTILE))
    assert made.least_mean([HONEST, OTHER, HOSTILE]) == 1.5
    assert made.least_mean([HONEST, OTHER]) == 1.0
    assert made.least_mean([HONEST]) == made.least_mean([]) == math.inf, "nothing is left out of one source, or none"


def test_a_flood_does_not_displace_the_others() -> None:
    """Very many values of one source leave those of the others in place."""
    made = values((1.0, HONEST), (3.0, HONEST), *((1e9, HOSTILE) for _ in range(1000)))
    assert made.least_mean([HONEST, HOSTILE]) == 2.0


@pytest.mark.parametrize("invented", [1, 2, 5, 100])
@pytest.mark.parametrize("honest", [[20.0, 25.0, 15.0], [1.0], []])
def test_sources_of_one_principal_do_not_outvote_another(honest: list[float], invented: int) -> None:
    """However many names one token has, an actor far below a return keeps it from counting as reached."""
    made = values(*((value, Source("lab", 0)) for value in honest), kept=100)
    for number in range(200):
        made.append(5000.0 + number % 2, Source("lab", 1 + number % invented))
    assert made.least_mean([Source("lab", place) for place in range(1 + invented)]) < 50


def test_a_fleet_of_one_principal_is_not_kept_waiting_by_chance() -> None:
    """Actors that are alike reach their common mean, although the own mean of some is below it."""
    draw, reached = random.Random(7), 0
    for _ in range(50):
        made = values(*((draw.gauss(100, 30), Source("lab", number % 20)) for number in range(400)), kept=100)
        reached += made.least_mean([Source("lab", place) for place in range(20)]) > 90
    assert reached > 40


def test_a_source_without_values_counts() -> None:
    """If only one of several present sources has values, nothing is left without it."""
    assert values((1e9, HOSTILE)).least_mean([HONEST, HOSTILE]) == -math.inf
    assert values().least_mean([HONEST, HOSTILE]) == -math.inf


@pytest.mark.parametrize("seed", range(20))
def test_it_equals_the_definition(seed: int) -> None:
    """The result is the least of the mean of the newest values, of those of their share without each that has some, and of own means."""
    draw = random.Random(seed)
    sources = [Source(draw.choice(["a", "b", ""][: 1 + seed % 3]), place) for place in range(4)]
    kept = draw.choice([1, 3, 7])
    entries = [(draw.gauss(0, 1), draw.choice(sources)) for _ in range(draw.randrange(2, 60))]
    made = values(*entries, kept=kept)
    present = sources[: draw.randrange(2, 5)]
    principals = {source.principal for source in present}
    by_principal = len(principals) > 1
    groups = len(principals) if by_principal else len(present)
    own: dict[Source, list[int]] = {source: [] for source in sources}
    for number, (_, source) in enumerate(entries):
        own[source] = [*own[source], number][-kept:]
    means = []
    window = sorted((n for source in present for n in own[source]), reverse=True)[:kept]
    for out in (None, *{entries[number][1] for number in window}):

        def stays(source: Source, out: Source | None = out) -> bool:
            return out is None or (source.principal != out.principal if by_principal else source != out)

        numbers = sorted((n for source in present if stays(source) for n in own[source]), reverse=True)
        wanted = kept if out is None else math.ceil(kept * (groups - 1) / groups)
        newest = [entries[number][0] for number in islice(numbers, wanted)]
        means.append(sum(newest) / len(newest) if newest else -math.inf)
    if not by_principal and groups > 1:
        wanted = max(LEAST_OWN, math.ceil(kept / groups))
        for source in present:
            newest = [entries[number][0] for number in own[source][-wanted:]]
            error = statistics.stdev(newest) / math.sqrt(len(newest)) if len(newest) > 1 else 0.0
            means.append(sum(newest) / len(newest) + OWN_ERRORS * error if newest else -math.inf)
    assert made.least_mean(present) == pytest.approx(min(means))


def test_a_checkpoint_keeps_values_and_order() -> None:
    """Saved values decide as before, with the same order of new ones; a state of another form is refused."""
    made = values((1.0, HONEST), (2.0, Source("lab", 7)), (3.0, HONEST))
    again = SourcedValues(3)
    again.load_state_dict(made.state_dict())
    assert again.state_dict() == made.state_dict()
    with pytest.raises(ValueError, match="places"):
        again.load_state_dict({**made.state_dict(), "places": [-1, 0, 0]})


def test_memory_is_bounded() -> None:
    """The source that was silent longest is forgotten first."""
    made = SourcedValues(3)
    for place in range(MAX_SOURCES + 5):
        made.append(1.0, Source("", place))
    assert len(made.state_dict()["values"]) == MAX_SOURCES
    assert 4 not in made.state_dict()["places"]
