"""Tests the order of measurements and their table."""

from dataclasses import dataclass, field

from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    Figures,
    MeasurementFailed,
    Series,
    Unavailable,
)
from tests.tools.bench.rounds import measure
from tests.tools.bench.table import ratios, render


@dataclass
class Scripted:
    """A contestant that follows the test and records its calls."""

    name: str
    diary: list[str] = field(default_factory=list)
    is_available: bool = True
    failing_round: int | None = None

    @property
    def title(self) -> str:
        """Returns its name in capitals."""
        return self.name.upper()

    def prepare(self) -> None:
        """Fails if the test says so."""
        if not self.is_available:
            raise Unavailable(f"{self.name} is not for this machine")

    def measure(self, round_index: int) -> Figures:
        """Records the round."""
        self.diary.append(f"{self.name}{round_index}")
        if round_index == self.failing_round:
            raise MeasurementFailed("it broke\nwith details")
        return Figures({STEPS_PER_SECOND: 100.0 + round_index})


def test_rounds_alternate() -> None:
    """All contestants are measured once per round, in reverse order every second round."""
    diary: list[str] = []
    results: dict[str, Series] = {}
    measure([Scripted("a", diary), Scripted("b", diary)], 2, results, lambda line: None, idle_seconds=0.0)
    assert diary == ["a0", "b0", "b1", "a1"]
    assert results["a"].median(STEPS_PER_SECOND) == 100.5
    assert [figures.round_index for figures in results["b"].rounds] == [0, 1]


def test_what_fails_is_named_and_the_others_go_on() -> None:
    """A missing peer or a failed round does not end the bench."""
    results: dict[str, Series] = {}
    contestants = [Scripted("sb3", is_available=False), Scripted("rollcast", failing_round=0)]
    measure(contestants, 2, results, lambda line: None, idle_seconds=0.0)
    assert len(results["rollcast"].rounds) == 1
    text = render(results)
    assert "SB3: not measured: sb3 is not for this machine" in text
    assert "ROLLCAST: round 1: it broke" in text
    assert "with details" not in text


def test_ratios_are_of_medians_and_more_is_better() -> None:
    """Twice the steps per second and half the time are both a ratio of two."""
    ours = Series(
        "rollcast", "Rollcast", [Figures({STEPS_PER_SECOND: rate, SECONDS_TO_TARGET: 5.0}) for rate in (1, 200, 999)]
    )
    theirs = Series("sb3", "SB3", [Figures({STEPS_PER_SECOND: 100.0, SECONDS_TO_TARGET: 10.0})])
    loop = Series("stepping", "stepping", [Figures({"actor_loop": 400.0})])
    results = {"rollcast": ours, "sb3": theirs, "stepping": loop}
    assert ratios(results) == {
        "sb3": {"speed": 2.0, "time_to_target": 2.0},
        "actor_loop": {"speed": 0.5},
    }
    assert "200 (1-999)" in render(results)
