"""The command line of the bench: `python -m tests.tools.bench` with `cpu`, `sessions`, `tls`, `updates`, `ranks`, `pairs`, `hostile`, `unity`, `profile` or nothing."""

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.tools.bench import (
    cpu_table,
    pair_runs,
    rank_runs,
    report,
    session_runs,
    session_table,
    table,
    tls_runs,
    tls_table,
    update_runs,
    update_table,
)
from tests.tools.bench.learner_cpu import ROWS
from tests.tools.bench.learner_cpu import contestants as learner_cpu
from tests.tools.bench.limit_runs import limits
from tests.tools.bench.measurement import Contestant, MeasurementFailed, Series
from tests.tools.bench.pair_runs import PAIRS
from tests.tools.bench.peer_sample_factory import SampleFactory
from tests.tools.bench.peer_sb3 import StableBaselines3
from tests.tools.bench.rollcast_run import Rollcast
from tests.tools.bench.rounds import measure
from tests.tools.bench.unity_runs import ml_agents
from tests.tools.bench.unity_runs import rollcast as rollcast_unity
from tests.tools.bench.workplace import Workplace

INTERRUPTED = 130
RENDERERS = {
    "cpu": cpu_table.render,
    "sessions": session_table.render,
    "tls": tls_table.render,
    "updates": update_table.render,
    "ranks": rank_runs.render,
    "pairs": pair_runs.render,
}
SIMPLE: Mapping[str, Callable[[Workplace], Sequence[Contestant]]] = {
    "tls": tls_runs.contestants,
    "updates": update_runs.contestants,
    "ranks": rank_runs.contestants,
}
"""Measurements without options of their own."""
_NAMES: Mapping[str, Sequence[str]] = {"cpu": [row.name for row in ROWS], "pairs": [pair.name for pair in PAIRS]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if strange := set(options.rows).difference(_NAMES.get(options.command, ())):
        parser.error(f"{options.command} has no row {min(strange)}")
    if options.against and options.command != "cpu":
        parser.error("--against is an option of cpu")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    workplace = Workplace() if options.out is None else Workplace(options.out.resolve())
    try:
        command = {"profile": _profile, "hostile": _hostile}.get(options.command, _bench)
        return command(options, workplace)
    except MeasurementFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        workplace.clean()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.bench",
        description="Trains CartPole with Rollcast and with other trainers, measures the limits of this machine, and "
        "compares. It takes about two minutes a round; nothing else should run meanwhile.",
    )
    parser.add_argument(
        "command", nargs="?", choices=("all", "cpu", "sessions", "tls", "updates", "ranks", "pairs", "hostile", "unity", "profile"), default="all",
        help="all: Gymnasium's CartPole; cpu: CPU seconds of the learner per 100,000 steps, in trainings of fixed length "
        "(three minutes a round, six with --against); sessions: many sessions at one service (twelve minutes a round); tls: "
        "plain text and TLS in turns (three minutes a round); updates: what a load costs the trainers (three minutes a round); ranks: updates of one rank and of two (two minutes a round); pairs: trainings with and without a process of trainers, and opponents of evaluations (five minutes a round); hostile: what a hostile client costs honest ones (a minute a "
        "pair); unity: a Unity player trained by ML-Agents and by Rollcast, from the same run file with the same command line (ten minutes a round); profile: where Rollcast's time goes "
        "(default: all)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=_positive, default=3, help="how often each is measured (default: 3)")
    parser.add_argument("--actors", type=_positive, default=1, help="actor processes of Rollcast (default: 1)")
    parser.add_argument("--envs", type=_positive, default=16, help="environments of each actor (default: 16)")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long Sample Factory trains (default: 40)")
    parser.add_argument("--limit-seconds", type=float, default=3.0, help="for each part of a limit (default: 3)")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", choices=("rollcast", "sb3", "sf", "mlagents", "limits"),
        help="leave out rollcast, sb3, sf, mlagents or limits; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--rows", nargs="+", default=[], metavar="ROW",
        help="; ".join(f"of {command}: {', '.join(names)}" for command, names in _NAMES.items()) + " (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="DIR",
        help="of cpu: another checkout with its own .venv, measured in turns with this one: A B, B A, A B, ...",
    )  # fmt: skip
    parser.add_argument("--sessions", type=_positive, default=1000, help="of sessions: how many (default: 1000)")
    parser.add_argument(
        "--session-seconds", type=float, default=300.0, metavar="SECONDS",
        help="of sessions: how long is measured once all have joined (default: 300)",
    )  # fmt: skip
    parser.add_argument(
        "--modes", nargs="+", default=[], metavar="MODE", choices=list(session_runs.MODES),
        help="of sessions: training, service (alone, a version each second) or restart (killed and started again) "
        "(default: all)",
    )  # fmt: skip
    parser.add_argument("--pairs", type=_positive, default=10, help="of hostile: pairs of blocks (default: 10)")
    parser.add_argument("--block-seconds", type=float, default=30.0, help="of hostile: length of a block (default: 30)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: results/bench)")
    return parser


def _bench(options: argparse.Namespace, workplace: Workplace) -> int:
    facts = report.machine()
    _tell(f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}")
    results: dict[str, Series] = {}
    render = RENDERERS.get(options.command, table.render)
    try:
        measure(_contestants(options, workplace), options.rounds, results, _tell)
    finally:
        if any(series.rounds for series in results.values()):
            print(f"\n{render(results)}")
            given = {name: value for name, value in vars(options).items() if name not in ("command", "out")}
            report.write(workplace.result, report.document(results, facts, given))
            _tell(f"all figures are in {workplace.result}")
    return 0 if not any(series.failures for series in results.values()) else 1


def _contestants(options: argparse.Namespace, workplace: Workplace) -> list[Contestant]:
    if options.command == "cpu":
        against = None if options.against is None else Path(options.against).resolve()
        return list(learner_cpu(workplace, options.rows, against))
    if options.command == "pairs":
        return list(pair_runs.contestants(workplace, options.rows))
    if options.command == "sessions":
        load = session_runs.Load(options.sessions, options.session_seconds)
        return list(session_runs.contestants(workplace, options.modes, load))
    if options.command in SIMPLE:
        return list(SIMPLE[options.command](workplace))
    if options.command == "unity":
        players: list[Contestant] = [rollcast_unity(workplace), ml_agents(workplace)]
        return [contestant for contestant in players if contestant.name not in options.skip]
    trainings: list[Contestant] = [
        Rollcast(workplace, actors=options.actors, envs=options.envs),
        StableBaselines3(workplace),
        SampleFactory(workplace, options.seconds),
    ]
    chosen = [contestant for contestant in trainings if contestant.name not in options.skip]
    if "limits" not in options.skip:
        chosen += limits(workplace, envs=options.envs, seconds=options.limit_seconds)
    return chosen


def _profile(options: argparse.Namespace, workplace: Workplace) -> int:
    from tests.tools.bench.profiling import profile

    print(profile(workplace, actors=options.actors, envs=options.envs))
    return 0


def _hostile(options: argparse.Namespace, workplace: Workplace) -> int:
    from tests.tools.bench import hostile

    facts = report.machine()
    _tell(f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}")
    found = hostile.measure(workplace, options.pairs, options.block_seconds, _tell)
    print(hostile.render(found))
    path = workplace.root / "hostile.json"
    report.write(path, {"machine": facts, **found})
    _tell(f"all figures are in {path}")
    return 0 if hostile.is_met(found) else 1


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt
