"""Runs parts of what is too long for each change: all, or those that are named.

python -m tests.tools.suite.nightly --list
python -m tests.tools.suite.nightly browser chaos
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.tools.suite.outcome import read_results
from tests.tools.suite.tiers import ROOT, SLOW, UNITS

PYTHON = sys.executable
WHEELS = "tests/deploy/test_wheel.py"
MUTATED = (
    "learner/service/ingest/credit.py",
    "learner/service/ingest/ledger.py",
    "actor_client/connection/window.py",
    "learner/link/codec.py",
    "protos/rollcast/trajectories.py",
    "learner/training/networks/normalizer.py",
    "learner/training/trainers/actor_critic/targets.py",
    "learner/training/trainers/ppo/trainer.py",
    "learner/training/trainers/sac/loss.py",
    "learner/training/matches/self_play_ratings.py",
    "learner/training/curriculum/lessons.py",
)
SUITE = (PYTHON, "-m", "tests.tools.suite", "nightly")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the nightly tests.

    Attributes:
        what: Is tested.
        needs: Beside the virtual environment.
        command: Runs it.
        of_tests: Whether it is one of pytest, whose counts are added.
    """

    what: str
    needs: str
    command: tuple[str, ...]
    of_tests: bool = True


def _alone(folder: str) -> tuple[str, ...]:
    return (*SUITE, folder, "--workers", "0")  # such tests need the whole machine


PARTS = {
    "units": Part(
        "tests marked `nightly` in the folders of units and in tests/e2e",
        "nothing",
        (*SUITE, *UNITS, SLOW[0], "--without", WHEELS),
    ),
    "mutants": Part(
        "the tests of the modules that count and learn",
        "a package index once",
        (PYTHON, "tasks.py", "mutants", *MUTATED, "--sample", "40"),
        of_tests=False,
    ),
    "tools": Part(
        "bench, gates, GPU suite on the CPU, mutants, players", "what `mutants` installs", (*SUITE, "tests/tools")
    ),
    "chaos": Part(
        "runs amid faults, planted bugs, clocks, full disks",
        "root, iproute2, libfaketime",
        _alone("tests/nightly/chaos"),
    ),
    "stack": Part(
        "images, compose, Kubernetes' files, Slurm, TLS, recipes",
        "root, a container engine, Debian's packages",
        (".ci/with-engine", *_alone("tests/nightly/stack")),
    ),
    "browser": Part("the status page", "Chromium", _alone("tests/nightly/browser")),
    "clients": Part(
        "clients in C++, GDScript and other languages, in their own runtimes",
        "Debian's packages",
        (*SUITE, "tests/nightly/clients"),
    ),
    "stock": Part("run files beside ML-Agents' own code", "a package index once", (*SUITE, "tests/nightly/stock")),
    "simulators": Part(
        "environment packages with processes of their own, and Godot",
        "Linux, Python 3.11, a package index, godot3-server",
        (*SUITE, "tests/nightly/simulators"),
    ),
    "wheels": Part("the wheel on each Python on the path or in pyenv", "a package index", (*SUITE, WHEELS)),
    "types": Part("types for Linux, macOS and Windows", "nothing", (PYTHON, "tasks.py", "types"), of_tests=False),
    "soak": Part(
        "the growth of memory in half an hour", "iproute2", (PYTHON, "-m", "tests.nightly.chaos.soak"), of_tests=False
    ),
    "fuzz": Part(
        "decoders of outside bytes (hours)", "a package index once", (PYTHON, "tasks.py", "fuzz"), of_tests=False
    ),
}


def main(names: Sequence[str]) -> int:
    """Runs the parts, and returns 0 if all passed."""
    if "--list" in names:
        print("\n".join(f"{name:8} {part.what}; needs {part.needs}" for name, part in PARTS.items()))
        return 0
    unknown = set(names) - set(PARTS)
    if unknown:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    chosen = list(names) or list(PARTS)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        for name in chosen:
            print(f"----- {name}: {PARTS[name].what}", flush=True)
            if run(name, results):
                failed.append(name)
        found, parts = read_results(results)
    if parts:
        print(found.closing_line())
    print(f"failed: {', '.join(failed)}" if failed else f"passed: {', '.join(chosen)}")
    return 1 if failed else 0


def run(name: str, results: Path) -> int:
    """Installs what a part needs if this is a Debian and we are root, and runs it; returns its exit code."""
    part = PARTS[name]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        subprocess.call([".ci/install", name], cwd=ROOT)
    more = ("--results", str(results)) if part.of_tests else ()
    environment = {**os.environ, "VENV": sys.prefix}
    return subprocess.call([*part.command, *more], cwd=ROOT, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
