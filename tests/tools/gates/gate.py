"""Defines a gate: a training, a budget, seeds, and a rule for the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.tools.bench.processes import REPOSITORY

SHIPPED = REPOSITORY / "learner" / "run_files"
EXAMPLES = REPOSITORY / "deploy" / "examples"
OWN = Path(__file__).parent / "runs"
SEEDS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Arm:
    """One training: a learner with a run file, and actors with an environment.

    Attributes:
        name: Within its gate.
        run_file: The run file as users have it.
        env: What actors are told by ``--env``, or by ``--game``.
        budget_steps: Environment steps of all actors, dropped ones included; the run's ``max_steps``.
        target: Of the mean return of the last 100 training episodes, which ends the run; None continues to the budget,
            whatever the run file says.
        settings: Values set on the learner's command line, below ``behaviors.<the only one>``.
        options: More of that command line.
        env_kwargs: Of the environment.
        actor: Kind of actor: the command after `rollcast act`.
        actors: Processes.
        envs: Environments in each.
        actor_options: More of the actors' command line.
        greedy_episodes: Deterministic episodes of the last policy; 0 plays none.
        wall_seconds: After which the run ends, whatever it has reached.
        recorded_episodes: Demonstrations that the trained policy leaves to later arms; 0 records none.
        demonstrations: Name of the arm whose recording takes the place of ``{demo}`` in `settings`.
        trained_by: Trains in a way of its own; None starts processes that talk over gRPC. It is given the arm, the seed,
            and the path of what the run leaves to later arms, without a suffix.
    """

    name: str
    run_file: Path
    env: str
    budget_steps: int
    target: float | None = None
    settings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    actor: Literal["gym", "pettingzoo", "boards"] = "gym"
    actors: int = 2
    envs: int = 8
    actor_options: tuple[str, ...] = ()
    greedy_episodes: int = 0
    wall_seconds: float = 7200.0
    recorded_episodes: int = 0
    demonstrations: str | None = None
    trained_by: Callable[["Arm", int, Path], "Trained"] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of one arm with one seed.

    Attributes:
        seed: Of the run.
        stop_reason: Why it ended.
        steps: Taken by all actors, dropped ones included.
        seconds: From the first step to the last.
        episodes: Finished training episodes.
        train: Mean return of the last 100 of them; None if there was none.
        best: The best such mean of the run.
        steps_to_target: Steps until the target was reached; None if it was not, or there was none.
        seconds_to_target: Seconds until then.
        optimizer_steps: Gradient steps, where the run's last checkpoint says them.
        greedy: Returns of deterministic episodes.
        lag: Versions between acting and learning in the last update, mean, where it was looked at.
        against: Share of the games that the last policy wins against each of several others: the snapshots of its run,
            oldest first, or the last policies of another arm.
        curve: Environment steps and mean training return of at least 20 episodes, 100 for `trained_by`; empty for none.
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
    against: tuple[float, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()

    @property
    def greedy_mean(self) -> float | None:
        """Returns the mean return of the deterministic episodes."""
        return sum(self.greedy) / len(self.greedy) if self.greedy else None

    def as_dict(self) -> dict[str, Any]:
        """Returns what the JSON file has of it."""
        return {**asdict(self), "greedy_mean": self.greedy_mean}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Trained":
        """Returns a result that :meth:`as_dict` wrote."""
        curve = tuple((int(step), float(value)) for step, value in content["curve"])
        lists = {name: tuple(content[name]) for name in ("greedy", "against")}
        fields = {name: value for name, value in content.items() if name != "greedy_mean"}
        return cls(**{**fields, **lists, "curve": curve})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a gate."""

    passed: bool
    text: str


Results = Mapping[str, Sequence[Trained]]
"""The results of each arm by its name, one entry per seed."""

Rule = Callable[[Results], Verdict]


@dataclass(frozen=True, slots=True)
class Gate:
    """A task that must be learned.

    Attributes:
        name: One word, for the command line.
        title: What the table calls it.
        asks: What must be reached, in words.
        arms: Trained one after another, each with all seeds.
        rule: What is made of the results.
        seeds: Of the runs.
        length: ``quick`` gates take under 45 minutes together; ``named`` runs only if it is named.
    """

    name: str
    title: str
    asks: str
    arms: tuple[Arm, ...]
    rule: Rule
    seeds: tuple[int, ...] = SEEDS
    length: Literal["quick", "long", "named"] = "quick"
