"""The command line of ``rollcast-learner evaluate``; torch is loaded once it is clear what is wanted."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from learner.common.exits import ExitCode, UserError

_EPILOG = """\
The policy is served at the run's own address (--address for another one), and whatever actors connect play it: start
them as for training. The episodes are shared out equally among the actors that are there once --actors of them have
come, and of each actor the first episodes to begin count, so that short ones are not favoured. Nothing is written into
the run's folder. The results are printed; --json FILE keeps them as JSON, --json - prints that instead.
"""


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("which", metavar="RUN", help="a run's folder, or its id")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="where run folders are")
    parser.add_argument("--episodes", metavar="N", type=_count, default=100, help="of each behavior (default: 100)")
    parser.add_argument("--actors", metavar="N", type=_count, default=1, help="begin once so many came (default: 1)")
    parser.add_argument("--behavior", metavar="NAME", help="measure this one alone")
    parser.add_argument(
        "--checkpoint", metavar="WHICH", default="last", help="last (default), best, a step, or a .pt file"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--deterministic", action="store_true", help="the likeliest action (default: as the run file says)"
    )
    way.add_argument("--stochastic", action="store_true", help="actions are drawn, as in training")
    parser.add_argument("--seed", metavar="N", type=_seed, help="of the environments (default: the run's)")
    parser.add_argument("--json", metavar="FILE", help="write the results there as JSON; - prints them")
    parser.add_argument("--address", metavar="HOST:PORT", help="where actors connect (default: the run's)")
    parser.add_argument("--insecure", action="store_const", const="true", help="allow plain text beyond this machine")
    parser.add_argument("--torch-device", metavar="DEVICE", help="cpu, cuda, cuda:1 (default: cuda if there is one)")
    parser.add_argument("--max-wall-seconds", metavar="S", help="give up after S seconds")
    parser.add_argument("--log-format", metavar="FORMAT", help="auto, console or json")
    parser.set_defaults(run=_evaluate)


def run_folder(which: str, results_dir: Path) -> Path:
    """Returns the folder of a run that is named by its path or its id.

    Raises:
        UserError: there is none, or it has no settings.
    """
    for folder in (Path(which), results_dir / which):
        if (folder / "configuration.yaml").is_file():
            return folder
    raise UserError(
        ExitCode.NOTHING_TO_RESUME,
        f"there is no run {which!r}: neither {Path(which)} nor {results_dir / which} has a configuration.yaml; "
        "`rollcast-learner runs` lists what there is",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000000")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 2147483647")
    return int(text)


def _evaluate(parsed: argparse.Namespace) -> int:
    folder = run_folder(parsed.which, Path(parsed.results_dir))
    try:
        from learner.settings.load import load_run_options  # noqa: PLC0415 - help needs none of it

        over = ("address", "insecure", "torch_device", "max_wall_seconds", "log_format")
        flags = {name: value for name in over if (value := getattr(parsed, name)) is not None}
        loaded = load_run_options(
            folder / "configuration.yaml",
            cli=flags,
            set_items=["rollcast.http=false", "rollcast.control_address=127.0.0.1:0"],
            environ=dict(os.environ),
        )
        from learner.commands.evaluate_run import EvaluationRequest, evaluate  # noqa: PLC0415 - torch takes seconds to load
    except ModuleNotFoundError as error:
        raise UserError(
            ExitCode.MISSING_EXTRA,
            f"evaluate needs the module {error.name!r}; in the checkout: pip install '.[learner]'",
        ) from None
    request = EvaluationRequest(
        folder=folder,
        loaded=loaded,
        checkpoint=parsed.checkpoint,
        episodes=parsed.episodes,
        actors=parsed.actors,
        behavior=parsed.behavior,
        is_deterministic=True if parsed.deterministic else False if parsed.stochastic else None,
        seed=max(0, loaded.options.env_settings.seed) if parsed.seed is None else parsed.seed,
    )
    return evaluate(request, json_file=parsed.json)
