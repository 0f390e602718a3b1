"""Runs the checks, the tests and the demo on any system; the Makefile calls this script too.

    python tasks.py demo --seed 2
    python tasks.py test -q -k ledger

Everything runs in a virtual environment, which is created or updated first. Environment variables:

    VENV         its folder (.venv)
    TORCH_INDEX  a package index to take torch from, and only torch
    WHEELS       a folder of wheels to look in first; with PIP_NO_INDEX=1, the only place
    WORKERS      number of processes that run tests in parallel: auto, one per core; 0 runs them in one process
    SUITE        arguments for the runner of tests, as in: SUITE='--seed 1 --retry'; SUITE=--help explains them
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / os.environ.get("VENV", ".venv")
EXTRAS = "learner,certs,gpu,actor,boards,dm-env-rpc,gym,box2d,mujoco,pettingzoo,sweep,unity,video,wandb,hub,mlflow,dev"
HASHES = "deploy/hashes.txt"
SYSTEMS = ("linux", "darwin", "win32")
"""What the product's types are checked for; on the system itself the tests' types are checked too."""
PRODUCT = ("protos", "learner", "actor_client")


def venv() -> None:
    """Creates or updates the virtual environment."""
    if sys.version_info < (3, 11):  # noqa: UP036 - for who has an older one
        sys.exit(f"{sys.executable} is older than Python 3.11; choose a newer one: make venv PYTHON=python3.12")
    installed = VENV / ".installed"
    sources = [ROOT / name for name in ("pyproject.toml", "constraints.txt", HASHES)]
    if installed.exists() and all(installed.stat().st_mtime >= source.stat().st_mtime for source in sources):
        return
    if not program("python").exists() and subprocess.call([sys.executable, "-m", "venv", str(VENV)]):  # noqa: S603
        sys.exit(f"{sys.executable} has no venv module; on Debian: apt-get install python3-venv")
    print(f"setting up {VENV.name}: a few minutes the first time, seconds afterwards", flush=True)
    # First what the file of hashes lists, each file compared with its hash; then torch, whose builds differ, and the project.
    install = []
    if os.environ.get("WHEELS"):
        install += ["--find-links", os.environ["WHEELS"]]
    listed = sum(line[:1].isalnum() for line in (ROOT / HASHES).read_text(encoding="utf-8").splitlines())
    pip("1/2 packages", listed, *install, "--require-hashes", "--no-deps", "-r", HASHES)
    install += ["-c", "constraints.txt"]
    if os.environ.get("TORCH_INDEX"):
        pip("2/2 torch", 1, *install, "--no-deps", "--index-url", os.environ["TORCH_INDEX"], "torch")
    pip("2/2 torch and Rollcast", 2, *install, "--no-build-isolation", "-e", f".[{EXTRAS}]")
    installed.touch()


def pip(step: str, total: int, *arguments: str) -> None:
    """Installs packages; shows the step, and in a terminal how many of them have been fetched."""
    is_terminal, fetched, width = sys.stdout.isatty(), 0, 30
    process = start("python", "-m", "pip", "install", "--progress-bar", "off", *arguments, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    print(f"  {step}", end="" if is_terminal else "\n", flush=True)
    with process:
        for line in process.stdout or ():
            fetched += line.startswith((b"Collecting ", b"Obtaining "))
            doing = "installing" if line.startswith(b"Installing ") else "fetching"
            if is_terminal and line.startswith((b"Collecting ", b"Obtaining ", b"Installing ")):
                done = min(width, width * fetched // total)
                bar = "#" * done + "." * (width - done)
                print(f"\r  {step:24} [{bar}] {min(fetched, total)}/{total} {doing:10}", end="", flush=True)
    if is_terminal:
        print(flush=True)
    finish(process)


def lint() -> None:
    """Checks for mistakes and style."""
    run("ruff", "check", ".")
    run("ruff", "format", "--check", ".")


def types() -> None:
    """Checks the types: of everything for this system, and of the product for the other systems."""
    others = [system for system in SYSTEMS if system != sys.platform]
    commands = [["mypy"]]
    commands += [["mypy", "--platform", each, "--cache-dir", f".mypy_cache/{each}", *PRODUCT] for each in others]
    running = [(command, start(*command)) for command in commands]
    failed = [" ".join(command) for command, process in running if process.wait()]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def imports() -> None:
    """Checks the import rules between packages."""
    run("lint-imports")


def test(*arguments: str) -> None:
    """Runs every check and the unit tests; arguments are passed to pytest."""
    lint()
    imports()
    with tempfile.TemporaryFile("w+") as said:
        types_of_this_system = start("mypy", stdout=said, stderr=subprocess.STDOUT)
        try:
            suite("units", *arguments)
        finally:
            code = types_of_this_system.wait()
            said.seek(0)
            print(said.read(), end="", flush=True)
    if code:
        sys.exit(code)


def test_ci(*arguments: str) -> None:
    """Runs the tests that start processes or take seconds; arguments are passed to pytest."""
    suite("ci", *arguments)


def costs(*arguments: str) -> None:
    """Records the processor time of each test file, by which files are split between processes."""
    for tier in arguments or ("units", "ci"):
        run("python", "-m", "tests.tools.suite", tier, "--costs")


def shake(*arguments: str) -> None:
    """Runs changed test files again and again on a busy machine, shuffled (5 minutes; --base COMMIT)."""
    run("python", "-m", "tests.tools.suite.shake", *arguments)


def nightly(*arguments: str) -> None:
    """Runs the named parts of what is too long for each change, or all of them; --list names them."""
    run("python", "-m", "tests.tools.suite.nightly", *arguments)


def fuzz(*arguments: str) -> None:
    """Fuzzes decoders of outside bytes; arguments are passed to tests/tools/fuzz."""
    require("fuzz", "atheris")
    run("python", "-m", "tests.tools.fuzz", *arguments)


def mutants(*arguments: str) -> None:
    """Checks the tests of modules with mutants of these; arguments are passed to tests/tools/mutants."""
    require("mutants", "coverage", "libcst", "mutmut")
    run("python", "-m", "tests.tools.mutants", *arguments)


def audit(*arguments: str) -> None:
    """Looks the pinned packages up in databases of known faults; arguments are passed to deploy/audit.py."""
    run("python", "deploy/audit.py", *arguments)


def demo(*arguments: str) -> None:
    """Trains CartPole with a learner and two actors; arguments are passed to `rollcast train`."""
    own = ["--env", "CartPole-v1", "--actors", "2", "--num-envs", "4", "--run-id", "demo", "--force"]
    run("rollcast", "train", "learner/run_files/cartpole.yaml", *own, *arguments)


def suite(tier: str, *arguments: str) -> None:
    """Runs the tests of a tier in several processes."""
    own = shlex.split(os.environ.get("SUITE", ""))
    run("python", "-m", "tests.tools.suite", tier, *own, "--", *arguments)


def require(tool: str, *modules: str) -> None:
    """Installs what only one tool needs, unless it can be imported."""
    probe = [str(program("python")), "-c", f"import {', '.join(modules)}"]
    if subprocess.call(probe, stderr=subprocess.DEVNULL):  # noqa: S603
        install = ["python", "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
        run(*install, "-r", f"tests/tools/{tool}/requirements.txt")


def program(name: str) -> Path:
    """Returns the path of a program in the virtual environment, which differs between systems."""
    folder = sysconfig.get_path("scripts", "venv", vars={"base": str(VENV)})
    return Path(folder, name + (sysconfig.get_config_var("EXE") or ""))


def start(name: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a program of the virtual environment."""
    path = os.pathsep.join([str(program("python").parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}
    return subprocess.Popen([str(program(name)), *arguments], cwd=ROOT, env=environment, **options)  # noqa: S603


def run(name: str, *arguments: str) -> None:
    """Runs a program of the virtual environment; exits with its code if that is not 0."""
    signal.signal(signal.SIGINT, lambda *_: None)  # the program gets Ctrl+C too, and takes its time to end
    finish(start(name, *arguments))


def finish(process: subprocess.Popen[bytes]) -> None:
    """Waits for a program; exits with its code if that is not 0."""
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    if code:
        sys.exit(code if code > 0 else 128 - code)


TASKS = {
    "venv": venv,
    "lint": lint,
    "types": types,
    "imports": imports,
    "test": test,
    "test-ci": test_ci,
    "shake": shake,
    "nightly": nightly,
    "costs": costs,
    "fuzz": fuzz,
    "mutants": mutants,
    "audit": audit,
    "demo": demo,
}


def main() -> None:
    """Runs the task that the command line names."""
    task = TASKS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if task is None:
        lines = [f"  {name:9} {(each.__doc__ or '').splitlines()[0]}" for name, each in TASKS.items()]
        sys.exit("\n".join(["usage: python tasks.py TASK [ARGUMENT ...]", *lines]))
    venv()
    task(*sys.argv[2:])


if __name__ == "__main__":
    main()
