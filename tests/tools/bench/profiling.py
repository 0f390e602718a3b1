"""Profiles an end-to-end run: the trainers' thread and the stepping thread.

cProfile makes calls of Python functions several times as long, and those of C not: shares show where to look, and
rates under it mean nothing.
"""

import sys
from pathlib import Path

from tests.tools.bench.measurement import STEPS_PER_SECOND
from tests.tools.bench.processes import REPOSITORY
from tests.tools.bench.rollcast_run import Command, Rollcast
from tests.tools.bench.stops import IMPORTING, WAITING, Function, shares, stop_of
from tests.tools.bench.workplace import Workplace

_FUNCTIONS = 15


def profile(workplace: Workplace, *, actors: int, envs: int) -> str:
    """Trains once to the target and returns the shares as text.

    Args:
        workplace: Where profiles go.
        actors: Actor processes; the profile shown is that of the one which ended last.
        envs: Environments in each.

    Raises:
        MeasurementFailed: The run failed.
    """
    profiles = {side: workplace.root / f"{side}.prof" for side in ("learner", "actor")}
    front = (sys.executable, "-m", "tests.tools.bench.profiled")
    command = Command(
        learner=(*front, "learner", str(profiles["learner"])), actor=(*front, "actor", str(profiles["actor"]))
    )
    figures = Rollcast(workplace, actors=actors, envs=envs, command=command).measure(0)
    parts = [f"{figures.values[STEPS_PER_SECOND]:,.0f} env steps/s under the profiler {figures.note}".rstrip()]
    parts += [
        _render("learner, the trainers' thread", profiles["learner"]),
        _render("actor, the stepping thread", profiles["actor"]),
    ]
    return "\n\n".join(parts)


def _render(title: str, path: Path) -> str:
    found = shares(path)
    work = found.work_seconds
    lines = [f"{title}: {work:.1f} s of work ({path})"]
    for stop, seconds in found.stops.items():
        share = "" if stop in (WAITING, IMPORTING) else f"{seconds / work:.1%}"
        lines.append(f"  {seconds:6.2f} s {share:>6}  {stop}")
    lines.append("  in single functions:")
    shown = [function for function in found.functions if stop_of(function) is not WAITING][:_FUNCTIONS]
    lines += [
        f"  {found.functions[function]:6.2f} s {found.functions[function] / work:6.1%}  {_name(function)}"
        for function in shown
    ]
    return "\n".join(lines)


def _name(function: Function) -> str:
    file, line, name = function
    if file == "~":
        return name
    path = Path(file)
    shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
    parts = shown.parts[-4:]
    return f"{'/'.join(parts)}:{line} {name}"
