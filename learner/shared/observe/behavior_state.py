"""The state of a behavior at one moment, and the table of its numbers, from which every display is derived."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeAlias, TypedDict

from learner.shared.saved_values import count, flag, number, shown

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
LOG_PROB_ERROR_LIMIT: Final = 1e-3
"""Above this difference actor and learner do not compute the same policy."""
Shown: TypeAlias = float | dict[str, float] | None


@dataclass(frozen=True, slots=True)
class Metric:
    """Describes the metric of a number, with the label ``behavior``.

    Attributes:
        name: Name without prefix and without ``_total``; empty for the name of the number. Only `FIELDS` may set
            another name.
        kind: Type of the metric.
        label: Name and value of one more label; numbers that differ only in it form one metric. Only `FIELDS` may set
            it.
        when_known: Whether the series begins with the first value instead of the default.
        finite: Whether values that are not finite are left out.
    """

    name: str = ""
    kind: Literal["gauge", "counter"] = "gauge"
    label: tuple[str, str] | None = None
    when_known: bool = False
    finite: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """Describes a number of a behavior: its meaning, its source, and where it is shown under which name.

    ``/api/status`` and ``rollcast status --json`` include every field under its `name` among the ``numbers``.

    Attributes:
        name: Name in records, and wherever no other name is set.
        text: Its meaning in one sentence; also the help of its metric.
        default: Value until it is known; None for none.
        status: Key in the behaviors of ``/api/status``, beside ``numbers``; empty for `name`, None omits it.
        log: Key in the machine-readable log line; empty for `name`, None omits it.
        whole: Whether it is a whole number, as each is that has a whole default.
        maker: Source of the number: ``trainer`` (its `numbers`), ``evaluation`` (results and best policy), or ``front``
            (queue, ledger, rates and store).
        keyed_by: Label that distinguishes several numbers ``name/key``; empty for a single one.
        digits: Decimals in the machine-readable log line; None for all.
        metric: Its metric; None for none.
        line: Key in the log line for people; empty omits it.
        label: Label in the panel, on the status page and in ``rollcast status``; empty omits it.
        warn_above: Larger values are red in the panel.
        curve: Column of the history; empty for none. Only `FIELDS` may set it.
        kept: Whether it is part of the run state; possible only for numbers of `FIELDS` from trainers.
    """

    name: str
    text: str
    default: float | None = 0.0
    status: str | None = ""
    log: str | None = ""
    whole: bool = False
    maker: Literal["trainer", "evaluation", "front"] = "trainer"
    keyed_by: str = ""
    digits: int | None = None
    metric: Metric | None = Metric()
    line: str = ""
    label: str = ""
    warn_above: float = math.inf
    curve: str = ""
    kept: bool = False

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"the field name {self.name!r} is not a valid metric name: use lower-case letters, digits and _"
            )

    @property
    def is_whole(self) -> bool:
        """True if it is a whole number."""
        return self.whole or isinstance(self.default, int)


def _front(name: str, text: str, default: float | None = 0, **shown: Any) -> Field:
    return Field(name, text, default, maker="front", **shown)


def _measured(name: str, text: str, default: float | None = None, **shown: Any) -> Field:
    return Field(name, text, default, maker="evaluation", metric=Metric(when_known=True), **shown)


def _hidden(name: str, text: str, default: float | None = 0.0, **shown: Any) -> Field:
    """Describes a number that status and log lines omit."""
    return Field(name, text, default, status=None, log=None, **shown)


def _term(name: str, **shown: Any) -> Field:
    metric = Metric("loss_term", label=("term", name))
    return _hidden(f"{name}_loss", "Weighted terms of the loss, which add up to it.", metric=metric, **shown)


def _played(name: str, text: str, **shown: Any) -> Field:
    """Describes a number of behaviors with self-play."""
    return Field(name, text, None, metric=Metric(when_known=True), **shown)


def _evaluated(name: str, text: str, seat: str = "") -> Field:
    """Describes a number of each opponent of the last evaluation."""
    return Field(name, text + seat, None, log=None, maker="evaluation", keyed_by="opponent")


def _against(name: str, text: str, metric: Metric = Metric()) -> Field:
    """Describes a number of each opponent of self-play that never learns."""
    return Field(name, text, None, log=None, keyed_by="opponent", metric=metric)


_COUNTER: Final = Metric(kind="counter")
_RETURN: Final = Metric("episode_return_mean", finite=True)
_RATE: Final[Mapping[str, Any]] = {"log": "env_steps_per_second", "digits": 1, "curve": "steps_per_second"}
_LAG: Final = "Mean number of versions between acting and learning, over the rows of the last update."
_ERROR: Final = "Largest difference between the actor's and the learner's log-probability on fresh steps."
_OWED: Final = "Updates owed for steps that entered replay memory."
_FIRST: Final = " in the seat of the team with the smaller number."
_SECOND: Final = " in the seat of the team with the larger number."
_TAKEN: Final = "Steps taken by all actors, by their last reports."

FIELDS: Final[tuple[Field, ...]] = (
    Field("version", "Completed updates.", 0, metric=None, line="version"),
    _front("env_steps_taken", _TAKEN, metric=_COUNTER, curve="env_steps_taken"),
    Field("env_steps_trained", "Steps in completed updates.", 0, metric=None, curve="env_steps_trained"),
    _front("max_steps", "Steps at which training ends."),
    _front("steps_per_second", "Steps taken per second, recently.", metric=None, **_RATE),
    Field("episodes", "Finished training episodes.", 0, metric=_COUNTER, line="episodes"),
    Field(
        "mean_return_100",
        "Mean return of the newest episodes (rollcast.reward_buffer_episodes).",
        None,
        "mean_return",
        metric=_RETURN,
        curve="mean_return",
    ),
    Field(
        "episode_length_mean",
        "Mean length of the newest training episodes, in steps.",
        None,
        digits=1,
        metric=None,
        curve="episode_length",
    ),
    _front("target_return", "Mean return at which the run stops.", None, metric=None),
    Field("update_steps", "Steps of the last update.", 0),
    Field("mean_lag", _LAG, metric=None, line="lag", label="lag", curve="mean_lag", kept=True),
    Field("log_prob_error_max", _ERROR, label="log-prob error", warn_above=LOG_PROB_ERROR_LIMIT, kept=True),
    _hidden(
        "observations_clipped",
        "Observed values clipped to ten deviations around the mean before they entered a normalizer.",
        0,
        metric=_COUNTER,
    ),
    _front("queued_steps", "Steps waiting for the trainer.", metric=Metric("queue_steps")),
    _front("queued_bytes", "Memory of the chunks waiting for the trainer.", metric=Metric("queue_bytes")),
    _front("queue_capacity_bytes", "Largest memory of the queue (rollcast.queue_bytes).", log=None),
    _hidden("ahead_limit_steps", "Limit of the steps that are unsettled or granted.", 0, maker="front"),
    _hidden("unsettled_steps", "Steps that are queued, or taken by the trainer and not settled.", 0, maker="front"),
    _hidden("credit_steps", "Steps granted to actors and not yet taken, by their last reports.", 0, maker="front"),
    _hidden("policy_version", "The newest published version.", 0, maker="front"),
    _hidden("policy_bytes", "Size of the newest published policy.", 0, maker="front"),
    _measured("evaluation_return_mean", "Mean return of the last evaluation.", curve="evaluation_return"),
    _measured("evaluation_return_std", "Standard deviation of the last evaluation's returns.", status=None, log=None),
    _measured("evaluation_step", "Trainer step of the policy that was evaluated last.", log=None),
    _measured("evaluation_length_mean", "Mean length of the episodes of the last evaluation, in steps.", log=None),
    _measured(
        "evaluation_rating",
        "Rating of the policy that was evaluated last, by all evaluations, in points above the first opponent.",
        digits=1,
        label="evaluation rating",
        curve="evaluation_rating",
    ),
    _measured("evaluation_rating_interval", "Half of the 95 % interval of evaluation_rating.", log=None),
    _evaluated(
        "evaluation_score",
        "Share of the points won against the opponent in the last evaluation; a draw is half a point.",
    ),
    _evaluated("evaluation_won_first", "Games of the last evaluation that the policy won", _FIRST),
    _evaluated("evaluation_drawn_first", "Games of the last evaluation that the policy drew", _FIRST),
    _evaluated("evaluation_lost_first", "Games of the last evaluation that the policy lost", _FIRST),
    _evaluated("evaluation_won_second", "Games of the last evaluation that the policy won", _SECOND),
    _evaluated("evaluation_drawn_second", "Games of the last evaluation that the policy drew", _SECOND),
    _evaluated("evaluation_lost_second", "Games of the last evaluation that the policy lost", _SECOND),
    _measured(
        "best_return",
        "Return by which best.pt was chosen: the mean of an evaluation, or of the newest training episodes.",
    ),
    _measured("best_step", "Trainer step of best.pt.", 0),
    Field(
        "best_principals",
        "Principals whose actors measured the best checkpoint: 1 for the word of one; 0 if actors are not identified.",
        0,
        maker="evaluation",
        log=None,
        metric=None,
    ),
    _hidden("loss", "Loss of the last update.", curve="loss"),
    _term("policy", curve="policy_loss"),
    _term("value", curve="value_loss"),
    _term("entropy"),
    _hidden("grad_norm", "L2 norm of the gradient of the last minibatch, before clipping."),
    _hidden(
        "approx_kl",
        "KL divergence of the new policy from the recorded one, over whole actions, mean over the last epoch.",
        curve="approx_kl",
    ),
    _hidden(
        "clip_ratio", "Share of steps of the last epoch whose whole action has a ratio that is clipped or truncated."
    ),
    _hidden("explained_variance_ratio", "Share of the variance of the returns that the critic explains."),
    _hidden("entropy_nats", "Mean entropy of the policy.", curve="entropy"),
    Field(
        "forbidden_choice_ratio",
        "Probability that the policy gives to forbidden choices before masks, over a sample of fresh steps.",
        None,
        digits=4,
        metric=Metric(when_known=True),
        label="forbidden choices",
    ),
    _hidden("update_epochs", "Complete passes over the buffer in the last update, which target_kl may end early."),
    _hidden("learning_rate", "Learning rate of the last update."),
    _hidden("updates", "Completed updates.", 0, metric=_COUNTER),
    _hidden(
        "last_update_timestamp_seconds",
        "When the last update was completed; before the first, when the trainer began.",
        None,
    ),
    _hidden(
        "last_publish_timestamp_seconds",
        "When the newest policy was published; before the first, when the trainer began.",
        None,
    ),
    _hidden("staged_steps", "Steps taken by the trainer and not yet in the ring.", 0),
    _hidden("ring_steps", "Steps in the ring on the training device, including those of the current update.", 0),
    _hidden("ring_capacity_steps", "Rows of the ring; each segment needs one row more than its steps.", 0),
    _hidden("replay_steps", "Steps in replay memory; 0 for trainers without one.", 0),
    _hidden("owed_updates", _OWED, 0),
    _hidden("replay_drawn_steps", "Steps drawn from replay memory; each draw of a step counts.", 0, metric=_COUNTER),
    _hidden("replay_evicted_steps", "Steps removed from replay memory to make room.", 0, metric=_COUNTER),
    _hidden(
        "replay_evicted_undrawn_steps", "Steps removed from replay memory that were never drawn.", 0, metric=_COUNTER
    ),
    _played(
        "elo",
        "Rating of self-play as in ML-Agents, after the last rated trajectory.",
        digits=1,
        line="elo",
        label="ELO",
        curve="elo",
    ),
    _played(
        "self_play_rating",
        "Strength of the policy in points of a rating with draws that counts each game once.",
        label="rating",
        curve="self_play_rating",
    ),
    _played("self_play_rating_interval", "Half of the 95 % interval of self_play_rating."),
    _played("learning_team", "Team that learns in self-play.", label="learning team", whole=True),
    _played("pool_snapshots", "Snapshots from which opponents are drawn."),
    _played(
        "opponent_age_steps",
        "Trained steps since the opponents of the last rated game were saved; 0 for the newest policy.",
    ),
    _played("game_steps", "Length of the last rated game, in steps."),
    _hidden("ghost_steps", "Steps of opponents, which are not trained and in no other count.", None, metric=_COUNTER),
    _hidden("games_won", "Rated games that a team won while it learned.", None, keyed_by="team", metric=_COUNTER),
    _hidden("games_drawn", "Rated games that a team drew while it learned.", None, keyed_by="team", metric=_COUNTER),
    _hidden("games_lost", "Rated games that a team lost while it learned.", None, keyed_by="team", metric=_COUNTER),
    _against(
        "games_won_against", "Rated games that the learning team won against a frozen or scripted opponent.", _COUNTER
    ),
    _against("games_drawn_against", "Rated games that the learning team drew against such an opponent.", _COUNTER),
    _against("games_lost_against", "Rated games that the learning team lost against such an opponent.", _COUNTER),
    _against("opponent_elo", "Rating of a frozen or scripted opponent as in ML-Agents."),
    _against("opponent_rating", "Strength of a frozen or scripted opponent, in points of the rating with draws."),
    _hidden(
        "environment_statistic",
        "Statistics of environments: mean, sum or newest value since the last summary; the first 50 keys.",
        None,
        keyed_by="key",
    ),
    _hidden(
        "episode_signal_reward",
        "Reward of an episode by signal, times its strength: the mean over those that ended in the last update.",
        None,
        keyed_by="signal",
    ),
    _hidden("rank_steps", "Steps of the last update by rank of the trainers.", None, keyed_by="rank"),
    _hidden(
        "rank_wait_ratio",
        "Share of the last update in which a rank exchanged numbers with the others or waited for them.",
        None,
        keyed_by="rank",
    ),
    _hidden(
        "return_scale",
        "Root mean square of the critic's targets, by which they are divided, of each reward signal.",
        None,
        keyed_by="signal",
    ),
)
"""The numbers of every behavior, in display order."""
NAMES: Final = frozenset(each.name for each in FIELDS)
LINE_KEYS: Final = frozenset(
    (
        "run_id",
        "generation",
        "state",
        "actors",
        "behavior",
        "bottleneck",
        "learner_busy",
        "actor_busy",
        "network_share",
        "ledger",
        "event",
        "level",
        "timestamp",
        "logger",
        "exc_info",
        "stack_info",
    )
)
"""Keys of a log line other than the numbers of a behavior."""
PAGE_KEYS: Final = frozenset(("name", "books", "actor_books", "game", "labels", "numbers", "own_labels"))
"""Keys of ``/api/status`` other than the numbers of a behavior."""
_OF_TRAINERS: Final = frozenset(each.name for each in FIELDS if each.maker == "trainer")


class ActorNumbers(TypedDict):
    """Fate of the steps of one behavior that the learner never received, in steps.

    ``env_steps_taken`` = received (in the learner's books) + sum(discarded) + sum(dropped) + outstanding.
    ``discarded`` (before they became part of a chunk) and ``dropped`` (in chunks that were never acked) are the steps
    that actors gave up, by reason; ``outstanding`` steps were still at the actors at their last report.
    """

    discarded: dict[str, int]
    dropped: dict[str, int]
    outstanding: int


class LedgerNumbers(TypedDict):
    """The learner's books of one behavior, in steps: received = trained + sum(dropped) + queued + sum(lost).

    ``duplicate`` (steps received twice) and ``unknown`` (sessions of an earlier generation that have not returned) are
    outside the equation.
    """

    received: int
    trained: int
    dropped: dict[str, int]
    duplicate: int
    queued: int
    lost: dict[str, int]
    unknown: int


def empty_books() -> LedgerNumbers:
    """Returns the books of a behavior without any steps."""
    return LedgerNumbers(received=0, trained=0, dropped={}, duplicate=0, queued=0, lost={}, unknown=0)


@dataclass(frozen=True, slots=True)
class TrainerStats:
    """Statistics of a trainer after a turn: plain values that any thread or process may read.

    Attributes:
        version: Completed updates.
        env_steps_trained: Steps in completed updates.
        episodes: Finished training episodes.
        mean_return: Mean return of the newest of them, None before the first.
        is_full: Whether the mean covers its full number of episodes.
        numbers: Reported numbers, by names of `FIELDS` or of `fields`; a missing number is not known yet.
        fields: The trainer's own fields, which describe its further numbers.
        max_steps: Steps after which training ends; 0 before the trainer has told.
    """

    version: int = 0
    env_steps_trained: int = 0
    episodes: int = 0
    mean_return: float | None = None
    is_full: bool = False
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    max_steps: int = 0

    def state_dict(self) -> dict[str, float | int | None]:
        """Returns the values saved in a run state."""
        return {
            "version": self.version,
            "env_steps_trained": self.env_steps_trained,
            "episodes": self.episodes,
            "mean_return": self.mean_return,
            **{each.name: self.numbers.get(each.name, each.default) for each in FIELDS if each.kept},
            "is_full": self.is_full,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restores the statistics from `state_dict`.

        Raises:
            TypeError, ValueError: The state is invalid.
        """
        defaults = cls().state_dict()
        for key in state:
            if key not in defaults:
                raise TypeError(f"{shown(key)} is not a number of a trainer")
        found: dict[str, Any] = {**defaults, **state}
        for key in ("version", "env_steps_trained", "episodes"):
            count(found, key)
        flag(found, "is_full")
        if found["mean_return"] is not None:
            number(found, "mean_return")
        kept = {each.name: found.pop(each.name) for each in FIELDS if each.kept}
        for key, value in kept.items():
            if type(value) is not float:  # a float may be infinite
                number(kept, key)
        return cls(**found, numbers=kept if found["version"] else {})


@dataclass(frozen=True, slots=True)
class GameView:
    """The newest game of an evaluation or a tournament, as an actor reported it; all texts are untrusted.

    Attributes:
        game: Name of the game.
        first: The player who moved first.
        second: The other player.
        result: The result as in PGN, `1-0` for a win of the first mover.
        moves: All moves in the notation of the game, separated by line feeds.
    """

    game: str
    first: str
    second: str
    result: str
    moves: str


@dataclass(frozen=True, slots=True)
class BehaviorState:
    """One behavior at one moment. `FIELDS` describes each number.

    Values that the learner uses in computations are attributes; the others are in `numbers`.

    Attributes:
        name: The behavior id.
        numbers: Further numbers, by names of `FIELDS` or of `own_fields`; a missing number is not known yet.
        own_fields: Own fields of the behavior's trainer.
        books: The ledger.
        actor_books: What became of the steps that are not in the ledger.
        game: The newest game of an evaluation or a tournament; None before the first.
    """

    name: str
    version: int = 0
    env_steps_taken: int = 0
    env_steps_trained: int = 0
    max_steps: int = 0
    steps_per_second: float = 0.0
    episodes: int = 0
    mean_return_100: float | None = None
    target_return: float | None = None
    queued_steps: int = 0
    queued_bytes: int = 0
    queue_capacity_bytes: int = 0
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    own_fields: tuple[Field, ...] = ()
    books: LedgerNumbers = field(default_factory=empty_books)
    actor_books: ActorNumbers = field(default_factory=lambda: ActorNumbers(discarded={}, dropped={}, outstanding=0))
    game: GameView | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields that describe a number of this behavior."""
        return (*FIELDS, *self.own_fields)

    def known(self, each: Field) -> float | None:
        """Returns a number, or None if it is not known yet."""
        found: float | None = getattr(self, each.name, None)
        return self.numbers.get(each.name, found)

    def value(self, each: Field) -> float | None:
        """Returns a number, or its default if it is not known yet."""
        known = self.known(each)
        return each.default if known is None else known

    def shown(self, each: Field) -> Shown:
        """Returns a number or its default; for several numbers of one name, all by key."""
        return dict(self._keyed(each)) if each.keyed_by else self.value(each)

    def rows(self, each: Field) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yields the series of a number's metric: values of the labels after ``behavior``, and the number."""
        metric = each.metric
        if metric is None:
            return
        if each.keyed_by:
            yield from (((key,), value) for key, value in self._keyed(each))
            return
        value = self.known(each) if metric.when_known else self.value(each)
        if value is not None and (math.isfinite(value) or not metric.finite):
            yield (() if metric.label is None else metric.label[1:]), float(value)

    def all_numbers(self) -> dict[str, float]:
        """Returns all numbers that are known or have a default, by name; several of one name as ``name/key``."""
        single = {each.name: self.value(each) for each in self.fields if not each.keyed_by}
        return {name: float(value) for name, value in {**self.numbers, **single}.items() if value is not None}

    def _keyed(self, each: Field) -> Iterator[tuple[str, float]]:
        prefix = f"{each.name}/"
        return ((name[len(prefix) :], value) for name, value in self.numbers.items() if name.startswith(prefix))

    @property
    def queue_fill(self) -> float:
        """Share of the queue that is full, by bytes, from 0 to 1 (above 1 if the limit was exceeded)."""
        return self.queued_bytes / self.queue_capacity_bytes if self.queue_capacity_bytes > 0 else 0.0

    @property
    def is_balanced(self) -> bool:
        """True if the books account for every step: those received, and those that actors say that they have taken."""
        books, others = self.books, self.actor_books
        fates = books["trained"] + sum(books["dropped"].values()) + books["queued"] + sum(books["lost"].values())
        given_up = sum(others["discarded"].values()) + sum(others["dropped"].values())
        taken = books["received"] + given_up + others["outstanding"]
        return books["received"] == fates and self.env_steps_taken == taken


def check_own_fields(fields: Iterable[Field]) -> None:
    """Refuses fields of a trainer whose names are taken, or that use a feature reserved for `FIELDS`.

    Raises:
        ValueError: A field is invalid.
    """
    of_table = (name for each in FIELDS for name in (each.name, each.status, each.log) if name)
    taken = {*of_table, *BehaviorState.__slots__, *LINE_KEYS, *PAGE_KEYS}
    for each in fields:
        names = {each.name, each.status or each.name, each.log or each.name}
        for name in sorted(names & taken):
            raise ValueError(
                f"the field {each.name!r} of a trainer uses the name {name!r}, which is taken: rename the field"
            )
        taken |= names
        metric = each.metric or Metric()
        if each.curve or each.kept or metric.name or metric.label:
            raise ValueError(
                f"the field {each.name!r} of a trainer sets curve, kept, or the name or label of its metric, which "
                "only Rollcast's own fields may set: remove them"
            )


def described(trainer: str, numbers: Mapping[str, float], own_fields: Iterable[Field]) -> dict[str, float]:
    """Returns a copy of a trainer's reported numbers as plain numbers.

    Args:
        trainer: Name of its class, for the error.
        numbers: Reported numbers.
        own_fields: Fields that describe them, in addition to `FIELDS`.

    Raises:
        ValueError: A number has no field.
    """
    own = {each.name for each in own_fields}
    for name in numbers:
        field_name = name.partition("/")[0]
        if field_name not in _OF_TRAINERS and field_name not in own:
            raise ValueError(
                f"{trainer} reports the number {name!r}, which no field describes: add one to its class attribute "
                "`fields`"
            )
    return {name: value if isinstance(value, int) else float(value) for name, value in numbers.items()}
