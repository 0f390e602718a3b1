"""Implements ``rollcast evaluate``: plays episodes of a run's policy on the actors that connect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import structlog
from rollcast.enums import AssignmentRole
from rollcast.text import printable

from learner.link.channel import Link
from learner.link.control import Finished
from learner.link.matches import match_numbers
from learner.link.to_front import StartMatch
from learner.link.to_trainers import Experience
from learner.service.calls.listening import require_free
from learner.service.calls.server import require_descriptors
from learner.service.view.display import how_to_start
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import BoundAddresses
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.service import EvaluationSettings
from learner.start.acting import act
from learner.start.finished_run import SavedPolicies, with_only, without_training_limits
from learner.start.own_actor import ActorRequest, OwnActor
from learner.start.tournament_report import SEATS_LEGEND
from learner.training.matches.game_records import GameRecords
from learner.training.matches.opponents import EvaluationOpponents
from learner.training.matches.players import opponent
from learner.training.matches.result import EvaluationResult
from learner.training.matches.round import Gathering, Round
from learner.training.run.context import RunContext
from learner.training.run.run import Acting
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers

log = structlog.get_logger(__name__)

EVALUATED = "evaluated"
"""Stop reason of a run that has played all its episodes."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """Arguments of an evaluation.

    Attributes:
        folder: Run folder.
        loaded: Settings of the run, overridden by the command line.
        checkpoint: ``last``, ``best``, a step, or a file.
        episodes: Episodes of each behavior.
        actors: Number of actors to wait for.
        behavior: The only behavior to evaluate; None evaluates all.
        is_deterministic: Whether the mode of the distribution acts; None uses the run file's setting.
        seed: Seed of the environments.
        own_actor: The actor to start; None waits for actors that are started elsewhere.
        against: Opponents of the policy; empty for episodes of the policy alone.
    """

    folder: Path
    loaded: LoadedRun
    checkpoint: str
    episodes: int
    actors: int
    behavior: str | None
    is_deterministic: bool | None
    seed: int
    own_actor: ActorRequest | None = None
    against: tuple[str, ...] = ()


class OfflineEvaluation(RunPart):
    """Waits for actors, distributes the episodes, and ends the run when all are played.

    Args:
        request: Arguments of the evaluation.
        context: Shared state of the run.
        states: States of the policies that act.
        opponents: Opponents of the policy, if there are any.
    """

    def __init__(
        self,
        request: EvaluationRequest,
        context: RunContext,
        states: SavedPolicies,
        opponents: EvaluationOpponents,
    ) -> None:
        self._request = request
        self._context = context
        self._states = states
        self._opponents = opponents
        self._running: Round | None = None
        self._gathering = Gathering(request.actors)
        self._steps: dict[str, int] = {}
        self._told_of = (0, 0)  # numbers of connected actors, and of those that can play

    def received(self, behavior: str, item: Experience) -> None:
        """Counts the finished episodes of a chunk."""
        if self._running is not None:
            self._running.received(behavior, item)

    def trainer_added(self, trainer: Trainer) -> None:
        """Loads a trainer's state.

        Raises:
            UserError: The state is missing or does not fit, or an opponent cannot play.
        """
        self._states.load(trainer)
        if self._request.behavior in {None, trainer.brain_name}:
            self._opponents.trainer_added(trainer)

    def after_turn(self, trainers: Trainers) -> None:
        """Begins once all actors are present, and ends once all episodes are played."""
        wanted = {name: trainer for name, trainer in trainers.items() if self._request.behavior in {None, name}}
        self._steps = {name: trainer.get_step for name, trainer in wanted.items()}
        indices = {trainer.context.behavior.index: name for name, trainer in wanted.items()}
        present = self._opponents.present(self._context.roster.actors, indices)
        if self._running is not None:
            self._running.settle({candidate.session_id for candidate in present})
            for match in self._running.deal(present):
                self._context.link.to_front.send(StartMatch(match))
            if self._running.is_done:
                self._context.link.to_front.send(Finished(EVALUATED))
        elif self._gathering.note(present):
            self._running = self._begin(wanted)
            log.info("evaluation_begins", actors=len(present), episodes=self._request.episodes, steps=self._steps)
        elif self._gathering.is_settled:
            self._tell_who_is_missing(list(wanted), len(present))

    @property
    def is_done(self) -> bool:
        """True if all episodes were played."""
        return self._running is not None and self._running.is_done

    def results(self) -> list[EvaluationResult]:
        """Returns the results by behavior; call it after the end."""
        running = self._running
        if running is None:
            return []
        found = [running.result(name, self._steps.get(name, 0)) for name in running.versions]
        return [self._opponents.rated(result, running) for result in found if result is not None]

    def _begin(self, wanted: Trainers) -> Round:
        self._opponents.prepare(wanted)
        return self._opponents.begin(
            wanted,
            match_numbers(1, evaluates=True),
            episodes=self._request.episodes,
            # The published policy already acts in this mode; the match only records it.
            is_deterministic=all(trainer.published.deterministic for trainer in wanted.values()),
        )

    def _tell_who_is_missing(self, wanted: Sequence[str], players_present: int) -> None:
        """Logs, each time it changes, which actors have joined and what is missing to begin."""
        connected = sum(actor.is_connected for actor in self._context.roster.actors)
        if (connected, players_present) == self._told_of:
            return
        self._told_of = (connected, players_present)
        if connected:
            log.info(
                "waiting_for_more_actors",
                connected=connected,
                that_can_play=players_present,
                needed=self._request.actors,
                behaviors=wanted,
            )


class Report(NamedTuple):
    """The result of what a command played.

    Attributes:
        document: JSON.
        table: Text for people.
        is_complete: Whether all was played.
    """

    document: str
    table: str
    is_complete: bool


def evaluate(request: EvaluationRequest) -> Report:
    """Runs an evaluation, and returns its results.

    Args:
        request: Arguments of the evaluation.

    Raises:
        UserError: The run, its checkpoint or an address cannot be used.
    """
    prepare(request.loaded)
    with TemporaryDirectory() as folder:
        results, is_complete, named = _play(request, SnapshotFiles(Path(folder)))
    document = {
        "run": str(request.folder),
        "checkpoint": request.checkpoint,
        "seed": request.seed,
        "episodes_asked": request.episodes,
        "is_complete": is_complete,
        "behaviors": [result.document() for result in results],
    }
    if request.own_actor is not None and request.own_actor.video is not None:
        log.info("videos", folder=str(request.own_actor.video))
    return Report(json.dumps(document, indent=2), table(results, named), is_complete)


def table(results: Sequence[EvaluationResult], named: Mapping[str, int] | None = None) -> str:
    """Returns the results as text, with one line each for returns and lengths.

    Args:
        results: Result of each behavior.
        named: Step in the name of each behavior's checkpoint, if one was chosen.
    """
    lines = []
    for result in results:
        how = "deterministic" if result.is_deterministic else "stochastic"
        policy = f"step {result.step} (version {result.version}{_more(result, (named or {}).get(result.behavior))})"
        lines.append(f"{result.behavior}: {result.episodes} episodes at {policy}, {how}")
        for name, spread in (("return", result.returns), ("length", result.lengths)):
            lines.append(
                f"  {name:6}  mean {spread.mean:.6g}  std {spread.std:.6g}  min {spread.min:.6g}  max {spread.max:.6g}"
            )
        lines += _games(result)
    return "\n".join(lines) or "no episode was played"


def _games(result: EvaluationResult) -> Iterator[str]:
    """Yields the results against each opponent, and the rating."""
    for each in result.opponents:
        seats = (
            f"{name} seat {seat.wins:g} won, {seat.draws:g} drawn, {seat.losses:g} lost"
            for name, seat in (("first", each.first), ("second", each.second))
        )
        yield f"  against {printable(each.name)}: score {each.score:.1%}; {'; '.join(seats)}"
    if result.opponents:
        yield f"  {SEATS_LEGEND}"
    if result.rating is not None and result.rating_error is not None:
        origin = printable(result.opponents[0].name)
        yield f"  rating  {result.rating:+.0f} ± {result.rating_error:.0f} points above {origin}"


def _more(result: EvaluationResult, named_step: int | None) -> str:
    """Explains why a checkpoint's name has a larger step than its policy."""
    if named_step is None or named_step <= result.step:
        return ""
    return f"; its checkpoint is named {named_step}, because {named_step - result.step} more steps were collected but not trained"


def _play(
    request: EvaluationRequest, snapshots: SnapshotFiles
) -> tuple[list[EvaluationResult], bool, Mapping[str, int]]:
    """Serves until all episodes are played or the evaluation is stopped.

    Args:
        request: Arguments of the evaluation.
        snapshots: Keeps the policies of opponents.

    Returns:
        The results, whether they are complete, and the steps in the names of the chosen checkpoints.

    Raises:
        UserError: The run, its checkpoint, an opponent or an address cannot be used.
    """
    states = SavedPolicies(request.folder, request.checkpoint, request.behavior)
    options = with_only(without_training_limits(request.loaded), states.names, self_play=bool(request.against))
    context = RunContext(options, Link(), run_id=request.folder.resolve().name, generation=1, seed=request.seed)
    states.restore_lessons(context.lessons)
    evaluation = OfflineEvaluation(
        request, context, states, _opponents(request, states, snapshots, GameRecords(None, context.meters))
    )
    own = None
    if request.own_actor is not None:
        own = OwnActor(request.own_actor, options.rollcast, lambda: evaluation.is_done)

    def listening(bound: BoundAddresses, _page: str) -> None:
        if own is None:
            missing = f"{request.actors} actors" if request.actors > 1 else "an actor"
            start = how_to_start(bound.address, tls=bound.tls, games=options.plays_games)
            log.info("waiting_for_actors", address=bound.address, missing=missing, start=start)
        else:
            own.start(bound.address)

    try:
        ending = act(
            context,
            (evaluation,) if own is None else (evaluation, own),
            listening,
            saved=states.behaviors_table,
            role=AssignmentRole.IDLE,
            acting=Acting(request.is_deterministic),
            snapshots=snapshots,
            own_tokens=() if own is None else own.tokens,
        )
    finally:
        if own is not None:
            own.close()
    return evaluation.results(), ending.reason == EVALUATED, states.named_steps


def _opponents(
    request: EvaluationRequest, states: SavedPolicies, snapshots: SnapshotFiles, records: GameRecords
) -> EvaluationOpponents:
    """Returns the opponents of a policy.

    Raises:
        UserError: The policy is one of several, or an opponent does not exist.
    """
    behavior = request.behavior or (states.names[0] if len(states.names) == 1 else None)
    if request.against and behavior is None:
        named = ", ".join(states.names) or "none"
        raise UserError(
            ExitCode.USAGE, f"the run in {request.folder} has the behaviors {named}: choose one with --behavior"
        )
    for text in request.against:
        opponent(text, behavior or "", request.folder.parent, request.folder)
    settings = EvaluationSettings(opponents=request.against, episodes=request.episodes)
    return EvaluationOpponents(settings, request.folder, snapshots, records)


def prepare(loaded: LoadedRun) -> None:
    """Checks that the service can start.

    Args:
        loaded: The settings.

    Raises:
        UserError: The address cannot be used.
    """
    service = loaded.options.rollcast
    require_descriptors(service)
    require_free(service.address, "--address")
