"""What a gate is: something to train, a budget, seeds, and a rule that says whether what came of it is good enough."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.processes import REPOSITORY

SHIPPED = REPOSITORY / "deploy" / "runs"
OWN = Path(__file__).parent / "runs"
SEEDS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Recording:
    """Demonstrations that an arm leaves behind when it is trained.

    Attributes:
        episodes: how many.
    """

    episodes: int = 10


@dataclass(frozen=True, slots=True)
class Arm:
    """One training: a learner with a run file, and actors with an environment.

    Attributes:
        name: within its gate.
        run_file: the run file as users have it.
        env: what actors are told by ``--env``.
        budget_steps: environment steps of all actors, dropped ones included; the run's ``max_steps``.
        target: of the mean return of the last 100 training episodes, which ends the run; None goes on to the budget.
        settings: values set on the learner's command line, below ``behaviors.<the only one>``.
        options: more of that command line.
        env_kwargs: of the environment.
        actors: processes.
        envs: environments in each.
        greedy_episodes: deterministic episodes of the last policy; 0 plays none.
        wall_seconds: after which the run ends, whatever it has reached.
        record: demonstrations that the trained policy leaves to later arms.
        demonstrations: name of the arm whose recording takes the place of ``{demo}`` in `settings`.
        trained_by: trains in a way of its own, by seed; None starts processes that talk over gRPC.
    """

    name: str
    run_file: Path
    env: str
    budget_steps: int
    target: float | None = None
    settings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    actors: int = 2
    envs: int = 8
    greedy_episodes: int = 0
    wall_seconds: float = 1500.0
    record: Recording | None = None
    demonstrations: str | None = None
    trained_by: Callable[["Arm", int], "Trained"] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of one arm with one seed.

    Attributes:
        seed: of the run.
        stop_reason: why it ended.
        steps: taken by all actors, dropped ones included.
        seconds: from the first step to the last.
        episodes: finished training episodes.
        train: mean return of the last 100 of them; None if there was none.
        best: the best such mean of the run.
        steps_to_target: steps until the target was reached; None if it was not, or there was none.
        seconds_to_target: seconds until then.
        optimizer_steps: gradient steps, where the run's last checkpoint says them.
        greedy: returns of deterministic episodes.
        lag: versions between acting and learning in the last update, mean, where it was looked at.
        curve: environment steps and mean return of the last 100 training episodes, where they were written down.
    """

    seed: int
    stop_reason: str
    steps: int
    seconds: float
    episodes: int
    train: float | None
    best: float | None = None
    steps_to_target: int | None = None
    seconds_to_target: float | None = None
    optimizer_steps: int | None = None
    greedy: tuple[float, ...] = ()
    lag: float | None = None
    curve: tuple[tuple[int, float], ...] = ()

    @property
    def greedy_mean(self) -> float | None:
        """Mean return of the deterministic episodes."""
        return sum(self.greedy) / len(self.greedy) if self.greedy else None

    def as_dict(self) -> dict[str, Any]:
        """Returns what the JSON file has of it."""
        return {**asdict(self), "greedy": list(self.greedy), "greedy_mean": self.greedy_mean}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a gate was passed.

    Attributes:
        passed: it was.
        text: what was reached, and if it failed, by how much it fell short.
    """

    passed: bool
    text: str


Results = Mapping[str, Sequence[Trained]]
"""What came of each arm, by its name, one entry a seed."""

Rule = Callable[[Results], Verdict]


@dataclass(frozen=True, slots=True)
class Gate:
    """Something that must be learned.

    Attributes:
        name: one word, for the command line.
        title: what the table calls it.
        asks: what must be reached, in words.
        arms: trained one after another, for each seed.
        rule: what is made of the results.
        seeds: of the runs.
    """

    name: str
    title: str
    asks: str
    arms: tuple[Arm, ...]
    rule: Rule
    seeds: tuple[int, ...] = SEEDS
