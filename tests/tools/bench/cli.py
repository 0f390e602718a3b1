"""The command line of the bench: `python -m tests.tools.bench`, with one of `COMMANDS` or nothing."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.tools.bench import hostile, learner_cpu, session_runs, tls_runs, unity_runs
from tests.tools.bench.limits.runs import limits
from tests.tools.bench.measurement import (
    SECONDS_TO_TARGET,
    STEPS_PER_SECOND,
    STEPS_TO_TARGET,
    TARGET_RETURN,
    Contestant,
    MeasurementFailed,
    Series,
)
from tests.tools.bench.peer_runs import SampleFactory, StableBaselines3
from tests.tools.bench.processes import Workplace
from tests.tools.bench.rollcast_run import Rollcast
from tests.tools.bench.rounds import measure
from tests.tools.bench.table import Column, Layout, document, machine, write
from tests.tools.command import INTERRUPTED, end_by_signals, tell

COMMANDS = {
    "all": "Gymnasium's CartPole with three trainers, and the limits of this machine (two minutes a round)",
    "cpu": "CPU seconds of the learner per 100,000 steps, in trainings of fixed length (three minutes a round, six with --against)",
    "sessions": "many sessions at one service (twelve minutes a round)",
    "tls": "plain text and TLS in turns (three minutes a round)",
    "hostile": "what a hostile client costs honest ones (a minute a pair)",
    "unity": "a scripted player trained by ML-Agents and by Rollcast, from the same run file (ten minutes a round)",
}
_TRAININGS = Layout(
    "",
    (
        Column("env steps/s", STEPS_PER_SECOND, ",.0f"),
        Column(f"seconds to {TARGET_RETURN:.0f}", SECONDS_TO_TARGET, ".1f"),
        Column(f"steps to {TARGET_RETURN:.0f}", STEPS_TO_TARGET, ",.0f"),
    ),
)
_ROWS = [row.name for row in learner_cpu.ROWS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if strange := set(options.rows).difference(_ROWS if options.command == "cpu" else ()):
        parser.error(f"{options.command} has no row {min(strange)}")
    if options.against and options.command != "cpu":
        parser.error("--against is an option of cpu")
    end_by_signals()
    workplace = Workplace() if options.out is None else Workplace(options.out.resolve())
    facts = machine()
    tell(f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}")
    try:
        command = _hostile if options.command == "hostile" else _bench
        return command(options, workplace, facts)
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
        description="Measures how fast Rollcast is. Nothing else should run meanwhile.",
    )
    told = "; ".join(f"{name}: {what}" for name, what in COMMANDS.items())
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="all", help=f"{told} (default: all)")
    parser.add_argument("--rounds", type=_positive, default=3, help="how often each is measured (default: 3)")
    parser.add_argument(
        "--skip", action="append", default=[], choices=("rollcast", "sb3", "sf", "mlagents", "limits"),
        help="leave one out; may be repeated",
    )  # fmt: skip
    rows = ", ".join(_ROWS)
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help=f"of cpu: {rows} (default: all)")
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
        "--modes", nargs="+", default=[], choices=session_runs.MODES, help="of sessions: modes (default: all)"
    )
    parser.add_argument("--pairs", type=_positive, default=10, help="of hostile: pairs of blocks (default: 10)")
    parser.add_argument("--block-seconds", type=float, default=30.0, help="of hostile: length of a block (default: 30)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: results/bench)")
    return parser


def _bench(options: argparse.Namespace, workplace: Workplace, facts: Mapping[str, object]) -> int:
    results: dict[str, Series] = {}
    contestants, layout = _measured(options, workplace)
    try:
        measure(contestants, options.rounds, results, tell)
    finally:
        if any(series.rounds for series in results.values()):
            print(f"\n{layout.render(results)}")
            given = {name: value for name, value in vars(options).items() if name != "out"}
            write(workplace.result, document(results, facts, given))
            tell(f"all figures are in {workplace.result}")
    return 0 if not any(series.failures for series in results.values()) else 1


def _measured(options: argparse.Namespace, workplace: Workplace) -> tuple[Sequence[Contestant], Layout]:
    """Returns what a command measures, and its table."""
    chosen: Sequence[Contestant]
    layout = _TRAININGS
    match options.command:
        case "cpu":
            against = None if options.against is None else Path(options.against).resolve()
            layout = learner_cpu.layout(is_pair=against is not None)
            chosen = learner_cpu.contestants(workplace, options.rows, against)
        case "sessions":
            load = session_runs.Load(options.sessions, options.session_seconds)
            layout, chosen = session_runs.LAYOUT, session_runs.contestants(workplace, options.modes, load)
        case "tls":
            layout, chosen = tls_runs.LAYOUT, tls_runs.contestants(workplace)
        case "unity":
            chosen = [unity_runs.rollcast(workplace), unity_runs.ml_agents(workplace)]
        case _:
            chosen = [Rollcast(workplace), StableBaselines3(workplace), SampleFactory(workplace)]
            chosen += [] if "limits" in options.skip else limits(workplace)
    return [contestant for contestant in chosen if contestant.name not in options.skip], layout


def _hostile(options: argparse.Namespace, workplace: Workplace, facts: Mapping[str, object]) -> int:
    found = hostile.measure(workplace, options.pairs, options.block_seconds, tell)
    print(hostile.render(found))
    path = workplace.root / "hostile.json"
    write(path, {"machine": facts, **found})
    tell(f"all figures are in {path}")
    return 0 if hostile.is_met(found) else 1


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number
