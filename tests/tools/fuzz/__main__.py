"""Fuzzes the decoders of outside bytes with atheris, one after another: `make fuzz FUZZ='http --seconds 600'`.

Each target runs in a process of its own until its processor time is used up, until it finds no new code for five minutes,
or until it has a finding. What it found stays in `.fuzz/TARGET`, and a later call continues there; `--keep` copies the smallest
set of inputs that reaches the same code into the corpus, which `make test` replays.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from tests.tools.fuzz.target import CORPUS, LONG, all_targets

WORK: Final = Path(".fuzz")
SECONDS: Final = 600.0
IDLE_SECONDS: Final = 300.0
LONG_FACTOR: Final = 3.0
MEMORY_MIB: Final = 2048
HANG_SECONDS: Final = 120
MAX_KEPT: Final = 32
MAX_KEPT_BYTES: Final = 1 << 15
"""Most inputs that `--keep` copies for one target, and their bytes, the smallest ones first; faults have names of their own."""
_PROGRESS: Final = re.compile(r"#(\d+)\s+(\w+)\s+cov: (\d+)")
_TOTAL: Final = re.compile(r"stat::number_of_executed_units: +(\d+)")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Progress:
    """What a fuzzer has reported."""

    target: str
    executions: int = 0
    coverage: int = 0
    cpu_seconds: float = 0.0
    new_at: float = 0.0
    ended: str = ""
    finding: str = ""


def main() -> int:
    """Fuzzes the named targets, or all."""
    parser = argparse.ArgumentParser(
        prog="make fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--list", action="store_true", help="list the targets")
    parser.add_argument(
        "--seconds", type=float, help="processor time of each target (600; 1800 for callers without identity)"
    )
    parser.add_argument("--keep", action="store_true", help="do not fuzz; copy what was found into the corpus")
    asked = parser.parse_args()
    targets = all_targets()
    unknown = set(asked.targets) - set(targets)
    if asked.list or unknown:
        print("\n".join(sorted(targets)) if not unknown else f"no such target: {', '.join(sorted(unknown))}")
        return 2 if unknown else 0
    failed = False
    for name in asked.targets or targets:
        if asked.keep:
            keep(name)
            continue
        seconds = asked.seconds or SECONDS * (LONG_FACTOR if name in LONG else 1.0)
        progress = fuzz(name, seconds)
        note(progress)
        failed |= bool(progress.finding)
    return 1 if failed else 0


def fuzz(name: str, seconds: float) -> Progress:
    """Runs one target in a process of its own.

    Args:
        name: The target.
        seconds: Most processor time.
    """
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    progress = Progress(name)
    command = [sys.executable, "-m", "tests.tools.fuzz.child", name, str(folder), str(CORPUS / name)]
    command += [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={HANG_SECONDS}", f"-artifact_prefix={folder}/"]
    command += ["-print_final_stats=1", "-report_slow_units=60", "-use_value_profile=0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:  # atheris prints exceptions of Python to the one, libFuzzer everything else to the other
        assert process.stdout is not None
        tail: list[str] = []
        reader = threading.Thread(target=_read, args=(process.stdout, progress, tail))
        reader.start()
        began = 0.0  # processor time when the first input was run
        while process.poll() is None:
            time.sleep(0.5)
            used = _cpu_seconds(process.pid) or began + progress.cpu_seconds
            if not progress.executions:
                began = used
            progress.cpu_seconds = used - began
            if progress.cpu_seconds > seconds:
                progress.ended = f"{seconds:g} s of processor time"
            elif progress.executions and progress.cpu_seconds - progress.new_at > IDLE_SECONDS:
                progress.ended = f"no new code for {IDLE_SECONDS:g} s"
            if progress.ended:
                process.send_signal(signal.SIGTERM)  # libFuzzer then says how many inputs it ran
                break
        try:
            process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        reader.join()
    if not progress.ended:
        progress.ended = f"exit code {process.returncode}"
        progress.finding = "".join(tail[-60:])
    return progress


def _read(stream: IO[str], progress: Progress, tail: list[str]) -> None:
    """Reads libFuzzer's lines, which come at each new input and at powers of two."""
    for line in stream:
        found = _PROGRESS.match(line)
        if (total := _TOTAL.match(line)) is not None:
            progress.executions = int(total[1])
        elif found is None:
            tail.append(line)
            del tail[:-200]
        else:
            progress.executions = int(found[1])
            if int(found[3]) > progress.coverage:
                progress.new_at = progress.cpu_seconds
            progress.coverage = int(found[3])


def _cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process, all its threads together; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def note(progress: Progress) -> None:
    """Prints a result and appends it to `.fuzz/report.jsonl`."""
    with (WORK / "report.jsonl").open("a") as stream:
        stream.write(json.dumps(asdict(progress)) + "\n")
    print(
        f"{progress.target:18} {progress.executions:>9} inputs  {progress.coverage:>5} edges  "
        f"{progress.cpu_seconds / 60:5.1f} min  {progress.ended}",
        flush=True,
    )
    if progress.finding:
        print(progress.finding, flush=True)


def keep(name: str) -> None:
    """Copies the smallest inputs that reach what the work folder reaches into the corpus."""
    folder, corpus = WORK / name, CORPUS / name
    merged = WORK / f"{name}.merged"
    merged.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.tools.fuzz.child", name, str(merged), str(corpus), str(folder), "-merge=1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    corpus.mkdir(parents=True, exist_ok=True)
    found = sorted(merged.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    copied = copied_bytes = 0
    for path in found[:MAX_KEPT]:
        copied_bytes += path.stat().st_size
        if copied_bytes > MAX_KEPT_BYTES:
            break
        (corpus / path.name[:12]).write_bytes(path.read_bytes())
        copied += 1
    print(f"{name:18} {copied} of {len(found)} inputs kept")


if __name__ == "__main__":
    sys.exit(main())
