"""Trains CartPole on this machine: one learner and two actors, each a process of its own, as on three machines.

    python deploy/demo.py --seed 1
    python deploy/demo.py --seed 1 -- --set behaviors.CartPole.max_steps=20000

What follows ``--`` goes to the learner. The learner's output is shown as it comes; the actors write to files in the run
folder. Ctrl-C ends all of them in good order, a second one at once. The exit code is the learner's.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
RUN_FILE = ROOT / "deploy" / "runs" / "cartpole.yaml"
BEHAVIOR = "CartPole"
ACTORS = 2
ENVIRONMENTS_PER_ACTOR = 4

START_SECONDS = 180.0
"""A cold start reads torch from a slow disk."""
ACTOR_GRACE_SECONDS = 10.0
LEARNER_GRACE_SECONDS = 30.0
POLL_SECONDS = 0.1
LOG_TAIL_LINES = 15

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Failed(Exception):  # noqa: N818  (it says what happened)
    """The demo cannot go on; its message is for the user."""


class Stopped(Exception):  # noqa: N818  (it is no error)
    """The user wants the demo to end; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and returns its exit code."""
    parser = argparse.ArgumentParser(description="Trains CartPole here: one learner and two actors.")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="where the run folder goes")
    parser.add_argument("learner_arguments", nargs="*", metavar="-- ARGUMENT", help="more arguments for the learner")
    parsed = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        with contextlib.ExitStack() as processes:
            try:
                return train(parsed, processes)
            except Stopped:
                say("stopping: the actors first, then the learner; once more ends them at once")
                raise
    except Stopped as stopped:
        return 128 + stopped.number
    except Failed as failure:
        say(f"error: {failure}")
        return 1


def train(parsed: argparse.Namespace, processes: contextlib.ExitStack) -> int:
    """Starts the processes, waits for the learner to finish, and says what came of it.

    Raises:
        Failed: a process could not be started, or ended too early.
    """
    run_id = f"demo-{parsed.seed}"
    folder = parsed.results_dir / run_id
    before = _version(folder / "address.json")
    run_file = min(str(RUN_FILE), os.path.relpath(RUN_FILE), key=len)
    serve = ["rollcast-learner", "serve", run_file, "--run-id", run_id, "--force"]
    serve += ["--results-dir", str(parsed.results_dir), "--seed", str(parsed.seed), "--address", "127.0.0.1:0"]
    learner = processes.enter_context(running([*serve, *parsed.learner_arguments], LEARNER_GRACE_SECONDS))
    address = wait_for_address(learner, folder / "address.json", before)
    if address is None:
        return _exit_code(learner)
    logs = [folder / f"actor-{number}.log" for number in range(ACTORS)]
    command = ["rollcast-actor", "gym", "--env", "CartPole-v1", "--num-envs", str(ENVIRONMENTS_PER_ACTOR)]
    command += ["--behavior", BEHAVIOR, "--learner", address]
    actors = [
        processes.enter_context(running([*command, "--name", f"demo-{number}"], ACTOR_GRACE_SECONDS, log))
        for number, log in enumerate(logs)
    ]
    while learner.poll() is None:
        for actor, log in zip(actors, logs, strict=True):
            if actor.poll():
                raise Failed(f"an actor ended with code {actor.returncode}; the end of {log}:\n{_tail(log)}")
        time.sleep(POLL_SECONDS)
    for actor in actors:  # the learner has told them that the run is over
        with contextlib.suppress(subprocess.TimeoutExpired):
            actor.wait(ACTOR_GRACE_SECONDS)
    report(folder)
    return _exit_code(learner)


@contextlib.contextmanager
def running(command: list[str], grace_seconds: float, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs one of this installation's commands, and ends it at the end of the block if it has not ended by itself.

    Args:
        command: the command and its arguments.
        grace_seconds: time to end by itself after SIGTERM, before it is killed.
        log: where its output goes; None shows it.

    Raises:
        Failed: the command is not installed.
    """
    program = Path(sys.executable).with_name(command[0])
    say(f"$ {shlex.join(command)}{f' > {log}' if log else ''}")
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("wb")) if log else None
        try:
            # A group of its own: Ctrl-C reaches the demo alone, which then ends the others one by one.
            process = subprocess.Popen(  # noqa: S603  (our own commands)
                [str(program), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if log else None,
                process_group=0,
                preexec_fn=partial(_die_with, os.getpid()),  # noqa: PLW1509  (no threads here)
            )
        except OSError as error:
            raise Failed(f"{program} cannot be started ({error.strerror}): run make venv") from error
    try:
        yield process
    finally:
        end(process, grace_seconds)


def end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """Ends a process that has not ended by itself: asks it to stop and, when its time is over, kills it."""
    if process.poll() is not None:
        return
    try:
        process.terminate()
        process.wait(grace_seconds)
    except (subprocess.TimeoutExpired, Stopped):
        process.kill()
        process.wait()


def wait_for_address(learner: subprocess.Popen[bytes], file: Path, before: tuple[int, int] | None) -> str | None:
    """Waits until the learner has said where it listens, and returns that; None if it ended instead.

    Args:
        learner: its process.
        file: where it says so; one that an earlier learner left does not count.
        before: what :func:`_version` said of the file before the learner was started.

    Raises:
        Failed: it does neither in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while learner.poll() is None:
        if _version(file) not in {None, before}:
            return str(json.loads(file.read_text(encoding="utf-8"))["address"])
        if time.monotonic() > deadline:
            raise Failed(f"the learner did not write {file} within {START_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    return None


def report(folder: Path) -> None:
    """Says in two lines what came of the run."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        say(f"the learner left no summary in {folder}")
        return
    if summary.get("seconds_to_target") is None:
        say(f"ended by {summary.get('stop_reason')}, without the target; mean return {summary.get('mean_return_100')}")
    else:
        seconds, steps = summary["seconds_to_target"], summary["env_steps_to_target"]
        say(f"solved after {steps:,} steps, {seconds:.1f} s from the first one; {folder / 'summary.json'} has the rest")
    say(f"the trained policy: {summary.get('onnx_path') or 'none was written'}")


def say(text: str) -> None:
    """Prints at once, so that it stands in order among the output of other processes."""
    print(text, flush=True)  # noqa: T201


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    code = process.wait()
    return code if code >= 0 else 128 - code


def _version(file: Path) -> tuple[int, int] | None:
    """Returns what differs after a file was replaced, or None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-LOG_TAIL_LINES:]) or "  (nothing)"


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)


def _die_with(parent: int) -> None:
    """Lets Linux send SIGTERM to this new process when the demo dies without a chance to do so itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != parent:  # it died before it could be asked for
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
