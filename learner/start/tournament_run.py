"""Implements ``rollcast tournament``: players of one behavior play one another on the actors that connect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import structlog

from learner.link.channel import Link
from learner.link.control import Finished
from learner.service.view.display import how_to_start
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, write_file
from learner.shared.observe.address import BoundAddresses
from learner.shared.runfolder.lock import FolderLock
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.runfolder.store import read_run_state
from learner.shared.settings.load import LoadedRun
from learner.start.acting import act
from learner.start.evaluate_run import Report, prepare
from learner.start.finished_run import with_only, without_training_limits
from learner.start.tournament_report import Standing, document, plot, table
from learner.training.matches.game_records import GameRecords
from learner.training.matches.journal import GAMES_FILE, Journal, Terms
from learner.training.matches.players import distinct, opponent, players_of_run
from learner.training.matches.tournament import Tournament, TournamentRules, missing_scripts
from learner.training.run.context import RunContext

log = structlog.get_logger(__name__)

DONE: Final = "tournament_done"
"""Stop reason of a tournament that has played all its games."""
GAMES_OF_A_PAIR: Final = 200
"""Most games of each pair, on average, unless the command line says otherwise."""
RATINGS_FILE: Final = "ratings.json"
PLOT_FILE: Final = "ratings.svg"


@dataclass(frozen=True, slots=True)
class TournamentRequest:
    """Arguments of a tournament.

    Attributes:
        folder: Run folder.
        loaded: Settings of the run, overridden by the command line.
        results_dir: Folder of all runs.
        against: The players beside the checkpoints of the run.
        checkpoints: Most checkpoints of the run that play.
        behavior: Name of the behavior; None for the only one.
        interval: Halves of the intervals at which the tournament ends, in points.
        games: Most games; None for `GAMES_OF_A_PAIR` for each pair.
        match_games: Games of a match; None for as many as the actor plays at a time.
        random_moves: Random moves of each player at the start of a game.
        is_deterministic: Whether models take their most likely actions.
        actors: Number of actors to wait for.
        seed: Seed of the environments.
        output: Folder of the tournament.
        starts_over: Whether games that are there already are dropped.
    """

    folder: Path
    loaded: LoadedRun
    results_dir: Path
    against: tuple[str, ...]
    checkpoints: int
    behavior: str | None
    interval: float
    games: int | None
    match_games: int | None
    random_moves: int
    is_deterministic: bool
    actors: int
    seed: int
    output: Path
    starts_over: bool


def hold(request: TournamentRequest) -> Report:
    """Plays a tournament, writes its ratings, and returns them.

    Args:
        request: Arguments of the tournament.

    Raises:
        UserError: The run, a player, a folder or an address cannot be used.
    """
    prepare(request.loaded)
    behaviors = _behaviors(request)
    rules = _rules(request, list(behaviors))
    with ExitStack() as stack:
        stack.callback(_locked(request).release)
        terms = Terms(rules.behavior, rules.random_moves, rules.is_deterministic)
        journal = stack.enter_context(Journal(request.output / GAMES_FILE, terms))
        tournament = _play(request, rules, behaviors, journal)
    standing = Standing(rules.players, tournament.results, tournament.standings)
    is_done = tournament.is_done
    told = {"run": str(request.folder), **asdict(terms), "is_complete": is_done}
    text = json.dumps(document(standing, told), indent=2)
    _write(request.output / RATINGS_FILE, f"{text}\n")
    _write(request.output / PLOT_FILE, plot(standing, rules.behavior))
    for script in missing_scripts(rules, tournament.results):
        log.warning("script_did_not_play", opponent=script, start=f"rollcast act ... --opponent {script}")
    _tell_end(request, rules, tournament)
    return Report(text, table(standing), is_done)


def _tell_end(request: TournamentRequest, rules: TournamentRules, tournament: Tournament) -> None:
    """Logs that a tournament was stopped, or that it played all its games without reaching its goal."""
    if not tournament.is_done:
        log.info(
            "tournament_unfinished", games=tournament.games, most=rules.games, action="the same command continues it"
        )
    elif not tournament.is_narrow:
        log.warning(
            "interval_not_reached",
            widest_interval=round(tournament.standings.widest, 1),
            interval=request.interval,
            games=tournament.games,
            action="the same command with more --games continues it",
        )


def _rules(request: TournamentRequest, names: Sequence[str]) -> TournamentRules:
    """Returns what is played.

    Args:
        request: Arguments of the tournament.
        names: Behaviors of the run.

    Raises:
        UserError: The run has several behaviors and none was chosen, or a player cannot be found.
    """
    behavior = request.behavior
    if behavior is None and len(names) == 1:
        behavior = names[0]
    if behavior is None or behavior not in names:
        asked = "choose one with --behavior" if behavior is None else f"--behavior {behavior!r} is none of them"
        raise UserError(
            ExitCode.USAGE, f"the run in {request.folder} has the behaviors {', '.join(names) or 'none'}: {asked}"
        )
    players = players_of_run(request.folder, behavior, request.checkpoints)
    players += [opponent(text, behavior, request.results_dir, request.folder) for text in request.against]
    try:
        chosen = distinct(players)
    except UserError as error:
        if request.loaded.options.settings_for(behavior).self_play is not None:
            raise
        raise UserError(
            error.exit_code,
            f"{error.message}. The run file has no self_play for {behavior}: its environment needs two teams to play one "
            "another",
        ) from error
    pairs = len(chosen) * (len(chosen) - 1) // 2
    return TournamentRules(
        players=chosen,
        behavior=behavior,
        random_moves=request.random_moves,
        is_deterministic=request.is_deterministic,
        interval=request.interval,
        games=request.games or GAMES_OF_A_PAIR * pairs,
        match_games=request.match_games,
        actors=request.actors,
        max_silent_seconds=request.loaded.options.rollcast.evaluation.max_silent_seconds,
    )


def _behaviors(request: TournamentRequest) -> Mapping[str, object]:
    """Returns the behaviors of the run by name, each with its declaration if the run state has it.

    Raises:
        UserError: The run state is damaged.
    """
    state = read_run_state(request.folder)
    if state is None:
        return dict.fromkeys(request.loaded.options.behaviors)
    try:
        return {str(row["name"]): row for row in state.behaviors_table["behaviors"]}
    except (KeyError, TypeError) as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT, f"the run state in {request.folder} lists no behaviors; restore another copy of it"
        ) from error


def _locked(request: TournamentRequest) -> FolderLock:
    """Returns the lock on the folder of the tournament, which is created, and emptied if it starts over.

    Raises:
        UserError: The folder cannot be used, or another tournament runs there.
    """
    try:
        request.output.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(request.output)
        if request.starts_over:
            (request.output / GAMES_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            ExitCode.NOT_SAVED, f"--output {request.output} cannot be used: {error.strerror}; name another folder"
        ) from error
    return lock


def _play(
    request: TournamentRequest, rules: TournamentRules, behaviors: Mapping[str, object], journal: Journal
) -> Tournament:
    """Serves until the tournament is done or stopped, and returns it.

    Raises:
        UserError: A player or an address cannot be used, or the games cannot be written.
    """
    options = with_only(without_training_limits(request.loaded), behaviors, self_play=True)
    link, run_id = Link(), request.folder.resolve().name
    seed = (request.seed + journal.start - 1) % 2**31  # another start must not repeat the games of the ones before
    context = RunContext(options, link, run_id=run_id, generation=journal.start, seed=seed)
    status = TrainingStatus.load(request.folder / "run_logs" / "training_status.json")
    context.lessons.set_numbers(status.lessons(context.lessons.numbers()))
    snapshots = SnapshotFiles(request.output)
    tournament = Tournament(
        rules,
        context.roster,
        link.to_front.send,
        journal,
        snapshots,
        records=GameRecords(request.output, context.meters),
        on_done=lambda: link.to_front.send(Finished(DONE)),
    )
    if tournament.is_done:
        log.info("tournament_is_done", games=tournament.games, widest_interval=round(tournament.standings.widest, 1))
        return tournament

    def listening(bound: BoundAddresses, _page: str) -> None:
        log.info(
            "waiting_for_actors",
            address=bound.address,
            players=[player.name for player in rules.players],
            games=tournament.games,
            start=how_to_start(bound.address, tls=bound.tls, games=True),
        )

    known = [row for row in behaviors.values() if row is not None]
    act(context, (tournament,), listening, saved={"behaviors": known} if known else None, snapshots=snapshots)
    return tournament


def _write(path: Path, text: str) -> None:
    try:
        write_file(path, text.encode())
    except WriteFailed as error:
        raise UserError(ExitCode.NOT_SAVED, str(error)) from error
