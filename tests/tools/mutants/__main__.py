"""Checks the tests of a module with mutants: `make mutants MUTANTS='learner/service/ingest/ledger.py --sample 100'`.

A mutant is the module with one small mistake. For each, the unit tests run that are about the module and execute the place: those
of tests/learner/service/ingest/test_ledger.py, or, if there is no such file, of those in its folder that import the module. The report:

- the mutants that survive: every test passes. Each is a missing test, dead code, or a change without an effect (a default that
  is passed again, a faster path). With --importers, tests of all other files that import the module run on these too;
- the tests that no mutant needs: they were never the only ones to catch a mutant. They are candidates for removal, no more: a
  sample has not all mutants, and no mutant is made of constants, of defaults, and of what the code lacks.

All runs in a copy of the working tree, where a mutant may write and delete what it likes. Results stay in `.mutants`. Linux only.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.tools.mutants.report import candidates, candidates_shown, read, survivors_shown

WORK: Final = Path(".mutants")
ROOTS: Final = ("tests/protos", "tests/learner", "tests/actor_client")


def main() -> int:
    """Runs the tests on mutants of the named modules; returns 1 if a worker failed."""
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file of the product")
    parser.add_argument("--sample", type=int, default=0, help="most mutants of each module (all)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample")
    parser.add_argument(
        "--tests",
        nargs="+",
        default=[],
        metavar="FILE",
        help="the tests about the modules, instead of those of that file or folder",
    )
    parser.add_argument("--importers", action="store_true", help="run the tests of other files on what survives")
    asked = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    (WORK / ".gitignore").write_text("*\n")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        return check(asked, copy)


def check(asked: argparse.Namespace, copy: Path) -> int:
    """Runs the tests in a copy of the tree."""
    results, files, failed = [], set[str](), False
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "protos")])}
    for module in asked.modules:
        own = asked.tests or own_files(module)
        tests = own + (importers(module) if asked.importers else [])
        path = WORK / f"{module.replace('/', '.')}.jsonl"
        command = [sys.executable, "-m", "tests.tools.mutants.worker", module]
        command += [str(asked.sample), str(asked.seed), str(path.resolve()), *own, *tests]
        path.unlink(missing_ok=True)
        with path.with_suffix(".log").open("w") as log:
            ended = subprocess.run(
                command, cwd=copy, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        if ended.returncode or not path.exists():
            say(f"{module}: the tests do not run; see {path.with_suffix('.log')}")
            failed = True
            continue
        results.append(read(module, path))
        files.update(own)
        say(survivors_shown(results[-1]))
    say(candidates_shown(candidates(results, files)))
    return int(failed)


def copy_tree(copy: Path) -> None:
    """Copies the files of the working tree that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0"):
        if Path(name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, copy / name)


def say(text: str) -> None:
    """Prints a part of the report."""
    sys.stdout.write(f"{text}\n\n")
    sys.stdout.flush()


def own_files(module: str) -> list[str]:
    """Returns the files of tests about a module: the one of its name, or else those beside it that import it."""
    own = mirrored(module)
    return [str(own)] if own.exists() else [path for path in importers(module) if Path(path).parent == own.parent]


def importers(module: str) -> list[str]:
    """Returns the files of unit tests that import a module."""
    paths = sorted(path for root in ROOTS for path in Path(root).rglob("test_*.py"))
    return [str(path) for path in paths if dotted(module) in imported(path)]


def mirrored(module: str) -> Path:
    """Returns the place of a module's own tests."""
    path = Path(module)
    folder = Path("tests/protos", *path.parts[2:-1]) if path.parts[0] == "protos" else Path("tests", *path.parts[:-1])
    return folder / f"test_{path.stem}.py"


def dotted(module: str) -> str:
    """Returns the name that a module is imported by."""
    return ".".join(Path(module.removeprefix("protos/")).with_suffix("").parts)


def imported(path: Path) -> set[str]:
    """Returns the names that a file imports, of modules and of what is in them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{each.name}" for each in node.names}
    return found


if __name__ == "__main__":
    sys.exit(main())
