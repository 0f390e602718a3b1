"""Runs test files again and again, shuffled, in four processes beside two that are always busy.

python -m tests.tools.suite.shake                 # the test files changed since main, and those that import what changed
python -m tests.tools.suite.shake --base HEAD~3
python -m tests.tools.suite.shake tests/e2e/test_turns.py --rounds 30
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.tools.suite.outcome import Outcome
from tests.tools.suite.running import INTERRUPTED, command, side_by_side
from tests.tools.suite.shards import read_costs, split
from tests.tools.suite.tiers import ROOT, files_below

ROUNDS = 10
SECONDS = 300.0
WORKERS = 4
BUSY = 2
MARKS = "not nightly"
_BRANCHES = ("@{upstream}", "origin/HEAD", "origin/main", "main")


def main(words: Sequence[str]) -> int:
    """Shakes, and returns 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.suite.shake", allow_abbrev=False)
    parser.add_argument("files", nargs="*", help="test files, in place of those that changed")
    parser.add_argument(
        "--base", default="", help="the commit since which files have changed; default: where main was left"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no round begins that would end later")
    arguments = parser.parse_args(words)
    files = files_below(*arguments.files) if arguments.files else affected(changed(arguments.base or base()))
    if not files:
        print("no test file has changed")
        return 0
    print(f"{len(files)} test files, {arguments.rounds} rounds", flush=True)
    with busy():
        return rounds(files, arguments.rounds, arguments.seconds)


def rounds(files: Sequence[str], number: int, seconds: float) -> int:
    """Runs the files several times, as long as there is time; returns 0 if nothing failed."""
    costs = {**read_costs("ci"), **read_costs("units")}
    total = Outcome()
    failed = done = 0
    begin = time.monotonic()
    while done < number and (done == 0 or (time.monotonic() - begin) * (done + 1) / done <= seconds):
        done += 1
        # Few files run in every process, each in its own order.
        shards = split(files, WORKERS, costs, str(done))
        if len(files) < WORKERS:
            shards = [split(files, 1, costs, f"{done} {worker}")[0] for worker in range(WORKERS)]
        outcome, code = side_by_side(
            [command(MARKS, "-q", "-p", "no:cacheprovider", *shard) for shard in shards], may_be_empty=True
        )
        total.add(outcome)
        if code == INTERRUPTED:
            break
        failed += code != 0
    names = sorted({f"{each.test} {each.error}" for each in total.failures})
    print("\n".join(["", *(f"FAILED {name}" for name in names), total.closing_line()]))
    print(f"{done} of {number} rounds in {time.monotonic() - begin:.0f} s; {failed} of them failed")
    return 1 if failed else 0


@contextmanager
def busy() -> Iterator[None]:
    """Keeps two cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], process_group=0) for _ in range(BUSY)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def base() -> str:
    """Returns the commit where this branch left the one it goes to; on that one itself, the commit before."""
    head = git("rev-parse", "HEAD")
    for branch in _BRANCHES:
        try:
            found = git("merge-base", "HEAD", branch)
        except subprocess.CalledProcessError:
            continue
        if found != head:
            return found
    return "HEAD~1"


def changed(since: str) -> list[str]:
    """Returns the files of tests that differ from a commit, whether committed or not."""
    names = [*git("diff", "--name-only", since, "--", "tests").splitlines()]
    names += git("ls-files", "--others", "--exclude-standard", "tests").splitlines()
    return sorted({name for name in names if name.endswith(".py") and (ROOT / name).exists()})


def affected(names: Iterable[str], root: Path = ROOT) -> list[str]:
    """Returns the test files among these and those that import one of these, directly or not.

    Args:
        names: Of files, relative to the project.
        root: The project's folder.
    """
    imports = {path.relative_to(root).as_posix(): imported(path) for path in sorted((root / "tests").rglob("*.py"))}
    found = set(names)
    news = set(found)
    while news:
        modules = {name.removesuffix(".py").replace("/", ".") for name in news}
        news = {name for name, of in imports.items() if name not in found and of & modules}
        found |= news
    return sorted(name for name in found if Path(name).name.startswith("test_") and "/nightly/" not in name)


def imported(path: Path) -> set[str]:
    """Returns the modules of the tests that a file imports, by their full names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.startswith("tests.")}


def git(*words: str) -> str:
    """Returns what git says."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
