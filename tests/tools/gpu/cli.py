"""Runs the GPU suite: `python -m tests.tools.gpu` or `make gpu`."""

import argparse
import json
import os
import platform
import shutil
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tests.tools.bench.processes import REPOSITORY
from tests.tools.command import INTERRUPTED, chosen, tell
from tests.tools.gpu.catalog import CHECKS
from tests.tools.gpu.check import Check, Outcome, Setup
from tests.tools.gpu.devices import missing_cuda, quiet

NO_CUDA = 77
"""The exit code that test harnesses treat as skipped."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs checks and returns the exit status: 0 if all held, 1 if one did not, 77 without CUDA."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(f"{check.name:14} {check.asks}" for check in CHECKS))
        return 0
    try:
        checks = chosen(CHECKS, options.checks, "check")
    except ValueError as error:
        tell(f"error: {error}")
        return 2
    missing = missing_cuda() if options.device.type == "cuda" else ""
    if missing:
        tell(missing)
        return NO_CUDA
    quiet()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))  # as a learner does
    try:
        return _run_all(checks, options)
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.gpu",
        description="Looks whether training on a GPU does what training on a CPU does, and how fast it is. Exit status: 0 "
        "all held, 1 something did not, 77 there is no CUDA.",
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="names, or their beginnings; all if none is given")
    parser.add_argument("--list", action="store_true", help="say which checks there are")
    parser.add_argument(
        "--device", type=torch.device, default=torch.device("cuda"), metavar="DEVICE",
        help="cuda (default), cuda:1, or cpu, against which everything must then be exactly equal",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="how often a speed is measured (default: 5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each time (default: 5)")
    parser.add_argument(
        "--short", action="store_true", help="train and measure for seconds only: whether it runs, and nothing else"
    )
    parser.add_argument(
        "--out", type=Path, default=REPOSITORY / "results" / "gpu", metavar="DIR", help="where files and results go"
    )
    return parser


def _run_all(checks: Sequence[Check], options: argparse.Namespace) -> int:
    shutil.rmtree(options.out, ignore_errors=True)
    tell(_machine(options.device))
    results: list[dict[str, Any]] = []
    for check in checks:
        folder = options.out / check.name
        folder.mkdir(parents=True)
        setup = Setup(options.device, folder, options.rounds, options.seconds, options.short)
        began = time.monotonic()
        outcome = _outcome(check, setup)
        print(f"{check.name:14} {'ok    ' if outcome.held else 'FAILED'} {outcome.text}", flush=True)
        results.append({"check": check.name, "seconds": time.monotonic() - began, **asdict(outcome)})
        _write(options.out / "gpu.json", {"machine": _machine(options.device), "checks": results})
    failed = [result["check"] for result in results if not result["held"]]
    tell(f"{len(results) - len(failed)} of {len(results)} checks held; {options.out / 'gpu.json'} has all figures")
    return 1 if failed else 0


def _outcome(check: Check, setup: Setup) -> Outcome:
    """Runs a check; one that breaks off has failed, and the others still run."""
    try:
        return check.run(setup)
    except Exception as error:  # noqa: BLE001 - whatever a device can provoke
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        return Outcome(held=False, text=f"{type(error).__name__}: {lines[0]}")


def _machine(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    built = f"torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}"
    return f"{device}: {name}, {built}"


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
