"""Parses the command line of ``rollcast tournament``; loads torch only after the arguments are checked."""

from __future__ import annotations

import argparse
from pathlib import Path

from learner.cli.run_flags import (
    add_actors,
    add_address,
    add_run,
    count_of,
    env_seed,
    load_run,
    needing_extra,
    real,
    report_of,
    run_folder,
    seed_of,
    whole,
)

_EPILOG = """\
The checkpoints of RUN, and the players of each --against, play one another on the actors that connect: start them as for
training. Every game is between two players, each of which has one of the two teams of the behavior; seats alternate. Games
are given to the pairs that narrow the intervals most, until all 95 % intervals are within --interval points, or --games
were played. The first moves of each game are random, or two players without chance would repeat their games.

  rollcast tournament connect-four
  rollcast tournament connect-four --against random --against other-run@last --interval 40
  rollcast tournament connect-four --checkpoints 1 --against model.onnx --against actor:scripts:center

  random          draws all moves uniformly
  MODEL.onnx      an exported model of the behavior
  RUN@WHICH       a checkpoint of a run: a step, last or best; @WHICH is one of RUN itself
  actor:NAME      the script of actors that were started with --opponent NAME; the learner runs no code of others

Finished matches are kept in the folder of --output. The same command continues a tournament that was stopped or killed
there, and more players may join it. The folder also gets ratings.json and ratings.svg. Nothing else of the run changes.
"""


def add_tournament(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_run(parser)
    _add_players(parser)
    _add_games(parser)
    parser.add_argument("--output", metavar="DIR", help="folder of the tournament (default: RUN/tournament)")
    parser.add_argument("--force", action="store_true", help="drop the games in this folder and start over")
    parser.add_argument("--json", action="store_true", help="print the ratings as JSON")
    add_actors(parser)
    parser.add_argument("--seed", metavar="N", type=seed_of, help="seed of the environments (default: the run's)")
    add_address(parser, "the run's")
    parser.add_argument("--max-wall-seconds", metavar="S", help="stop after S seconds")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console or json")
    parser.set_defaults(run=_tournament)


def _add_players(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        metavar="PLAYER",
        action="append",
        default=[],
        help="another player: random, MODEL.onnx, RUN@WHICH or actor:NAME; may be repeated",
    )
    parser.add_argument(
        "--checkpoints",
        metavar="N",
        type=count_of,
        default=8,
        help="checkpoints of RUN that play, the first, the last and others evenly between them (default: 8)",
    )
    parser.add_argument("--behavior", metavar="NAME", help="behavior of the players (default: the only one of the run)")
    parser.add_argument(
        "--deterministic", action="store_true", help="models take their most likely actions (default: they draw them)"
    )


def _add_games(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        metavar="POINTS",
        type=real(1, 1000),
        default=50.0,
        help="end when no 95 %% interval is wider than this on either side (default: 50)",
    )
    parser.add_argument(
        "--games",
        metavar="N",
        type=count_of,
        help="end after N games at the latest (default: 200 for each pair of players)",
    )
    parser.add_argument(
        "--match-games",
        metavar="N",
        type=count_of,
        help="games of a match, which one actor plays in one order of seats (default: as many as it plays at a time, but "
        "at least 10)",
    )
    parser.add_argument(
        "--random-moves",
        metavar="N",
        type=whole(0, 1000),
        default=1,
        help="random moves of each player at the start of a game (default: 1, two plies of a board game)",
    )


def _tournament(parsed: argparse.Namespace) -> int:
    folder = run_folder(parsed.which, Path(parsed.results_dir))
    with needing_extra("tournament"):
        loaded = load_run(parsed, folder, ("address", "insecure", "max_wall_seconds", "log_format"))
        from learner.start.tournament_run import TournamentRequest, hold  # noqa: PLC0415 - torch takes seconds to load
    request = TournamentRequest(
        folder=folder,
        loaded=loaded,
        results_dir=Path(parsed.results_dir),
        against=tuple(parsed.against),
        checkpoints=parsed.checkpoints,
        behavior=parsed.behavior,
        interval=parsed.interval,
        games=parsed.games,
        match_games=parsed.match_games,
        random_moves=parsed.random_moves,
        is_deterministic=parsed.deterministic,
        actors=parsed.actors,
        seed=env_seed(parsed, loaded),
        output=Path(parsed.output) if parsed.output else folder / "tournament",
        starts_over=parsed.force,
    )
    return report_of(loaded, lambda: hold(request), as_json=parsed.json)
