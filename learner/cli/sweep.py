"""Defines the command `sweep`: its flags, and the spaces of values in which it searches."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from rollcast.addresses import split_address
from rollcast.signals import handling
from rollcast.text import printable

from learner.cli.run_flags import count_of, needing_extra
from learner.cli.serve_flags import add_run_settings
from learner.cli.sweep_request import BEST, FINAL, PRUNERS, TARGET_STEPS, Request, Space, space_of
from learner.cli.train_flags import add_environment
from learner.shared.exits import ExitCode, UserError

_DESCRIPTION: Final = """\
Searches settings by many runs, its trials: each samples values from the spaces, trains with them, and ends early if its returns
are below the median of the earlier trials. Needs Optuna: install the extra `sweep`.

  rollcast sweep --env CartPole-v1 --space learning_rate=log:1e-5:1e-2 --space batch_size=choice:64,128,256 --trials 20
  rollcast sweep run.yaml --env mine:Maze --space gamma=uniform:0.9:0.999 --space num_epoch=int:2:10 --parallel 2
  rollcast sweep run.yaml --space learning_rate=log:1e-5:1e-2 --address 0.0.0.0:50051 --insecure

Without --env, actors elsewhere join the first trial at --address, and stay for the others. Trials in parallel listen at the
following ports, and each needs actors of its own.
"""
_EPILOG: Final = """\
Spaces: log:LOW:HIGH, uniform:LOW:HIGH, int:LOW:HIGH[:STEP], choice:A,B,C. A KEY is a setting of the trainer by its name, such as
learning_rate, gamma or hidden_units, or a dotted path as of --set.

The study is the folder of --run-id (default: sweep) below --results-dir: study.db for Optuna, index.html with the curves and the
importance of each setting, and a run folder for each trial. Ctrl-C saves the trials that run. The same command continues the study
and these trials, also after it was killed; --force starts over.

"""
_DEFAULT_TRIALS: Final = 20
_DEFAULT_STUDY: Final = "sweep"
_NOT_OF_TRIALS: Final = frozenset(
    {"help", "space", "trials", "parallel", "objective", "pruner"}
    | {"run_id", "results_dir", "resume", "checkpoint", "force", "actor_args"}
)
"""Flags that trials do not have, or get from the sweep."""


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `sweep`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG + "exit codes:\n" + "\n".join(f"  {code:3d}  {code.help}" for code in ExitCode)
    study = parser.add_argument_group("study")
    study.add_argument(
        "--space", metavar="KEY=SPACE", action="append", required=True, type=_space,
        help="a setting and its space, such as learning_rate=log:1e-5:1e-2; repeat it for each setting",
    )  # fmt: skip
    study.add_argument(
        "--trials", metavar="N", type=count_of, default=_DEFAULT_TRIALS,
        help=f"trials of the study, earlier ones included (default: {_DEFAULT_TRIALS})",
    )  # fmt: skip
    study.add_argument("--parallel", metavar="N", type=count_of, default=1, help="trials at once (default: 1)")
    study.add_argument(
        "--objective", choices=(FINAL, BEST, TARGET_STEPS), default=FINAL,
        help="final: mean return at the end (default); best: highest mean return; target-steps: fewest steps to --target-return",
    )  # fmt: skip
    study.add_argument(
        "--pruner", choices=PRUNERS, default=PRUNERS[0],
        help="ends worse trials early: by the median of earlier trials (default), by Hyperband, or never",
    )  # fmt: skip
    add_environment(parser, is_required=False)
    add_run_settings(parser)
    parser.set_defaults(run=_sweep, parser=parser)


def request_of(parsed: argparse.Namespace) -> Request:
    """Returns what a command line asks for.

    Raises:
        UserError: A setting is wrong, or trials could not listen at their addresses.
    """
    space = dict(parsed.space)
    if len(space) < len(parsed.space):
        raise UserError(ExitCode.USAGE, "--space names a setting twice: give each one space")
    if parsed.env is not None and parsed.address is not None and parsed.parallel > 1:
        raise UserError(
            ExitCode.USAGE, f"--address {parsed.address} is for one learner: leave it out, or leave out --parallel"
        )
    seed = "" if parsed.seed is None else str(parsed.seed)
    return Request(
        command="serve" if parsed.env is None else "train",
        words=tuple(_trial_words(parsed)),
        last_words=("--actor-args", *parsed.actor_args) if parsed.actor_args else (),
        folder=Path(parsed.results_dir or "results") / (parsed.run_id or _DEFAULT_STUDY),
        space=space,
        trials=parsed.trials,
        parallel=parsed.parallel,
        objective=parsed.objective,
        pruner=parsed.pruner,
        behavior=parsed.behavior,
        seed=int(seed) if seed.isdecimal() else None,
        is_forced=parsed.force is not None,
        address=_address(parsed) if parsed.env is None else None,
    )


def _sweep(parsed: argparse.Namespace) -> int:
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stop.is_set():
            os._exit(ExitCode.INTERRUPTED)  # the learners notice, save and end
        stop.set()

    with needing_extra("sweep", "learner,sweep"):
        from learner.cli.sweep_run import shown, sweep, warn_only  # noqa: PLC0415 - help needs none of it
    warn_only()
    with handling(on_signal):
        study = sweep(request_of(parsed), stop, _say)
    if study.best_run is not None:
        found = ", ".join(f"{name}={shown(value)}" for name, value in study.best_settings.items())
        _say(f"best: {shown(study.best_value)} with {found}, in {study.best_run}")
    _say(f"page: {study.folder / 'index.html'}")
    return ExitCode.OK


def _say(line: str) -> None:
    with suppress(OSError):  # a lost console ends no trial
        sys.stdout.write(f"{printable(line, len(line))}\n")
        sys.stdout.flush()


def _trial_words(parsed: argparse.Namespace) -> Iterator[str]:
    """Yields the run file and the given flags that each trial has."""
    if parsed.run_file is not None:
        yield str(parsed.run_file)
    for action in parsed.parser._actions:  # noqa: SLF001 - argparse names them nowhere else
        value = getattr(parsed, action.dest, None)
        if not action.option_strings or action.dest in _NOT_OF_TRIALS or value in (None, action.default):
            continue
        flag = action.option_strings[-1]
        if action.nargs == 0:
            yield flag
        else:
            yield from (f"{flag}={each}" for each in (value if isinstance(value, list) else [value]))


def _address(parsed: argparse.Namespace) -> str:
    """Returns the address of the learner of the first trial.

    Raises:
        UserError: The settings are wrong, or the port is not the same for each trial.
    """
    from learner.shared.settings.load import load_run_options  # noqa: PLC0415 - help needs none of it

    names = ("address", "insecure", "certs", "http_address")
    given = {name: getattr(parsed, name) for name in names}
    loaded = load_run_options(parsed.run_file, cli=given, set_items=parsed.set_items, environ=dict(os.environ))
    address: str = loaded.options.rollcast.address
    if split_address(address)[1] == 0:
        raise UserError(
            ExitCode.USAGE, f"actors would not find the next trial at {address}: give --address a port, or give --env"
        )
    return address


def _space(text: str) -> tuple[str, Space]:
    try:
        return space_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
