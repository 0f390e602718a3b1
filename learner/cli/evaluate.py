"""Parses the command line of ``rollcast evaluate``; loads torch only after the arguments are checked."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from learner.cli.run_flags import (
    add_actors,
    add_address,
    add_run,
    count_of,
    env_seed,
    load_run,
    needing_extra,
    report_of,
    run_folder,
    seed_of,
)
from learner.shared.exits import ExitCode, UserError

_EPILOG = """\
The learner serves the policy at the run's own address, or at --address. Actors that connect play it: start them as for
training. The episodes are divided equally among the actors connected once --actors of them have joined. The first
episodes of each actor to begin count, so that short ones are not favoured. Nothing is written into the run's folder.
The results are printed; --json prints them as JSON, for `> FILE`.

With --env, evaluate itself starts an actor and ends it afterwards. It then listens on a free port of this machine alone, in
plain text also for a run with --certs. With --address, certificates and tokens are the run's, for actors of other machines too.

  rollcast evaluate RUN --env CartPole-v1 --episodes 10 --video videos
  rollcast evaluate RUN --env mine:Maze --actor-args --frame-stack 4 --num-envs 8
  rollcast evaluate RUN --env connect_four_v3 --pettingzoo --actor-args --team 'player_1=1'
  rollcast evaluate RUN --env connect_four --boards --against random --episodes 200 --stochastic
  rollcast evaluate RUN --env Game.x86_64 --godot --actor-args --speedup 8

With --against, the policy plays games against an opponent, half of them in each seat, and --episodes is their number. The
results are wins, draws and losses by seat. Both players begin each game with a random move. An opponent is random,
MODEL.onnx, RUN@WHICH (a step, last or best), or actor:NAME, the script of actors that were started with --opponent NAME.
"""
SEATS = 2
"""Seats of a game."""
_IDENTITY = ("certs", "tls_cert", "tls_key", "tls_ca", "tls_client_ca", "token_file", "trainer_address")
_OWN_SERVICE = ("rollcast.address=127.0.0.1:0", *(f"rollcast.{name}=null" for name in _IDENTITY))
"""Settings for an actor that evaluate starts, which has no identity: only this machine reaches the learner, in plain text."""
_KINDS: Final = {
    "pettingzoo": "the environment is one of rollcast act pettingzoo",
    "boards": "the environment is a game of rollcast act boards",
    "godot": "the environment is a build of rollcast act godot",
}
_OF_OWN_ACTOR = ("kinds", "video", "video_every", "actor_args")


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add_run(parser)
    parser.add_argument(
        "--episodes", metavar="N", type=count_of, default=100, help="episodes of each behavior (default: 100)"
    )
    add_actors(parser)
    parser.add_argument(
        "--against",
        metavar="PLAYER",
        action="append",
        default=[],
        help="play games against random, MODEL.onnx, RUN@WHICH or actor:NAME; may be repeated",
    )
    parser.add_argument("--behavior", metavar="NAME", help="measure only this behavior")
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        default="last",
        help="policy to measure: last (default), best, a step, or a .pt file",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--deterministic", action="store_true", help="take the most likely action (default: as in the run file)"
    )
    way.add_argument("--stochastic", action="store_true", help="sample actions, as in training")
    parser.add_argument("--seed", metavar="N", type=seed_of, help="seed of the environments (default: the run's)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    add_address(parser, "the run's")
    parser.add_argument("--torch-device", metavar="DEVICE", help="cpu, cuda, cuda:1 (default: cuda if available)")
    parser.add_argument("--max-wall-seconds", metavar="S", help="give up after S seconds")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console or json")
    _add_own_actor(parser.add_argument_group("start an actor"))
    parser.set_defaults(run=_evaluate)


def _add_own_actor(own: argparse._ArgumentGroup) -> None:
    own.add_argument("--env", metavar="ID", help="start an actor with this environment: an id, or module:callable")
    for name, text in _KINDS.items():
        own.add_argument(f"--{name}", action="append_const", dest="kinds", const=name, help=text)
    own.add_argument("--video", metavar="DIR", help="film the actor's first environment into DIR, one .mp4 per episode")
    own.add_argument(
        "--video-every",
        metavar="N",
        type=count_of,
        help="film only each Nth episode, beginning with the first (default: 1)",
    )
    own.add_argument(
        "--actor-args",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="flags for the actor; takes all that follow, so it must be last",
    )


def _check_own_actor(parsed: argparse.Namespace) -> None:
    """Refuses options of the evaluation's own actor if it starts none.

    Raises:
        UserError: An option needs a missing flag, which the message names.
    """
    given = [name for name in _OF_OWN_ACTOR if getattr(parsed, name) is not None]
    if given and parsed.env is None:
        flag = f"--{parsed.kinds[0] if given[0] == 'kinds' else given[0].replace('_', '-')}"
        raise UserError(
            ExitCode.USAGE, f"{flag} needs an actor that evaluate starts: add --env with an id or module:callable"
        )
    if parsed.video_every is not None and parsed.video is None:
        raise UserError(ExitCode.USAGE, "--video-every needs a folder for the videos: add --video DIR")
    kinds = parsed.kinds or []
    if len(set(kinds)) > 1:
        raise UserError(ExitCode.USAGE, f"--env is of one kind: leave out {' or '.join(f'--{each}' for each in kinds)}")
    if kinds and parsed.video is not None:
        raise UserError(ExitCode.USAGE, f"--video films environments of Gymnasium; leave it out with --{kinds[0]}")


def _check_against(parsed: argparse.Namespace) -> None:
    """Refuses opponents that cannot all play.

    Raises:
        UserError: There are too many opponents, or too few games.
    """
    from learner.shared.settings.service import MAX_OPPONENTS  # noqa: PLC0415 - help needs none of it

    if parsed.against and parsed.episodes < SEATS:
        raise UserError(ExitCode.USAGE, "--against plays half of the games in each seat: --episodes must be 2 or more")
    if len(parsed.against) > MAX_OPPONENTS:
        raise UserError(ExitCode.USAGE, f"--against names {len(parsed.against)} opponents; {MAX_OPPONENTS} may play")


def _evaluate(parsed: argparse.Namespace) -> int:
    _check_own_actor(parsed)
    with needing_extra("evaluate"):
        _check_against(parsed)
        folder = run_folder(parsed.which, Path(parsed.results_dir))
        over = ("address", "insecure", "torch_device", "max_wall_seconds", "log_format")
        is_alone = parsed.env is not None and parsed.address is None
        loaded = load_run(parsed, folder, over, _OWN_SERVICE if is_alone else ())
        from learner.start.evaluate_run import EvaluationRequest, evaluate  # noqa: PLC0415 - torch takes seconds to load
        from learner.start.own_actor import ActorRequest  # noqa: PLC0415 - see above
        from learner.training.matches.players import ACTOR  # noqa: PLC0415 - see above
    own = None
    if parsed.env is not None:
        own = ActorRequest(
            env=parsed.env,
            behavior=parsed.behavior,
            video=None if parsed.video is None else Path(parsed.video),
            video_every=parsed.video_every or 1,
            log_format=loaded.options.rollcast.log_format,
            arguments=tuple(parsed.actor_args or ()),
            kind=parsed.kinds[0] if parsed.kinds else "gym",
            opponent=next((each.removeprefix(ACTOR) for each in parsed.against if each.startswith(ACTOR)), ""),
        )
    request = EvaluationRequest(
        folder=folder,
        loaded=loaded,
        checkpoint=parsed.checkpoint,
        episodes=parsed.episodes,
        actors=parsed.actors,
        behavior=parsed.behavior,
        is_deterministic=True if parsed.deterministic else False if parsed.stochastic else None,
        seed=env_seed(parsed, loaded),
        own_actor=own,
        against=tuple(parsed.against),
    )
    return report_of(loaded, lambda: evaluate(request), as_json=parsed.json)
