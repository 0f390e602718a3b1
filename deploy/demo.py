"""Trains CartPole on this machine: one learner and two actors, each in a separate process, as on three machines.

    python deploy/demo.py --seed 1
    python deploy/demo.py --seed 1 -- --set behaviors.CartPole.max_steps=20000

Arguments after ``--`` go to the learner. The learner's output is shown immediately; the actors write to files in the
run folder. Ctrl-C ends all processes cleanly, a second Ctrl-C at once. The exit code is the learner's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from rollcast.signals import stop_signal_numbers

from actor_client.platform import ask_to_end, end_process, start_process

ROOT = Path(__file__).resolve().parents[1]
RUN_FILE = ROOT / "learner" / "run_files" / "cartpole.yaml"
BEHAVIOR = "CartPole"
ACTORS = 2
ENVIRONMENTS_PER_ACTOR = 4

START_SECONDS = 180.0
"""Long enough for a cold start, which reads torch from a slow disk."""
ACTOR_GRACE_SECONDS = 10.0
LEARNER_GRACE_SECONDS = 30.0
POLL_SECONDS = 0.1
LOG_TAIL_LINES = 15


class Failed(Exception):  # noqa: N818  (it says what happened)
    """Raised if the demo cannot continue; the message is for the user."""


class Stopped(Exception):  # noqa: N818  (it is no error)
    """Raised when the user ends the demo; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and returns its exit code."""
    parser = argparse.ArgumentParser(description="Trains CartPole here: one learner and two actors.")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run")
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="folder for the run folder")
    parser.add_argument("learner_arguments", nargs="*", metavar="-- ARGUMENT", help="further arguments for the learner")
    parsed = parser.parse_args(arguments)
    for number in stop_signal_numbers():
        signal.signal(number, _stop)
    try:
        with contextlib.ExitStack() as processes:
            try:
                return train(parsed, processes)
            except Stopped:
                say("stopping the actors, then the learner; another signal ends them at once")
                raise
    except Stopped as stopped:
        return 128 + stopped.number
    except Failed as failure:
        say(f"error: {failure}")
        return 1


def train(parsed: argparse.Namespace, processes: contextlib.ExitStack) -> int:
    """Starts the processes, waits for the learner to finish, and prints the result.

    Raises:
        Failed: A process could not be started, or ended too early.
    """
    run_id = f"demo-{parsed.seed}"
    folder = parsed.results_dir / run_id
    before = _version(folder / "address.json")
    run_file = str(RUN_FILE)
    with contextlib.suppress(ValueError):  # the run file is on another drive
        run_file = min(run_file, os.path.relpath(run_file), key=len)
    serve = ["rollcast", "serve", run_file, "--run-id", run_id, "--force"]
    serve += ["--results-dir", str(parsed.results_dir), "--seed", str(parsed.seed), "--address", "127.0.0.1:0"]
    learner = processes.enter_context(running([*serve, *parsed.learner_arguments], LEARNER_GRACE_SECONDS))
    address = wait_for_address(learner, folder / "address.json", before)
    if address is None:
        return _exit_code(learner)
    logs = [folder / f"actor-{number}.log" for number in range(ACTORS)]
    command = ["rollcast", "act", "gym", "--env", "CartPole-v1", "--num-envs", str(ENVIRONMENTS_PER_ACTOR)]
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
    for actor in actors:  # the learner has notified them that the run has ended
        with contextlib.suppress(subprocess.TimeoutExpired):
            actor.wait(ACTOR_GRACE_SECONDS)
    report(folder)
    return _exit_code(learner)


@contextlib.contextmanager
def running(command: list[str], grace_seconds: float, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command of this installation, and ends it at the end of the block if it still runs.

    Args:
        command: The command and its arguments.
        grace_seconds: Seconds to end by itself after SIGTERM, before it is killed.
        log: File for its output; None shows it.

    Raises:
        Failed: The command is not installed.
    """
    program = Path(sys.executable).with_name(command[0] + (sysconfig.get_config_var("EXE") or ""))
    say(f"$ {shlex.join(command)}{f' > {log}' if log else ''}")
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("wb")) if log else None
        try:
            # Ctrl-C reaches the demo alone, which then ends the others one by one.
            descriptor = output.fileno() if output else None
            process = start_process([str(program), *command[1:]], output=descriptor, ends_with_parent=True)
        except OSError as error:
            raise Failed(f"{program} cannot be started ({error.strerror}): run make venv") from error
    try:
        yield process
    finally:
        end(process, grace_seconds)


def end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """Ends a process that still runs: asks it to stop, and kills it after the grace period."""
    if process.poll() is not None:
        return
    try:
        ask_to_end(process)
        process.wait(grace_seconds)
    except (subprocess.TimeoutExpired, Stopped):
        end_process(process, at_once=True)
        process.wait()


def wait_for_address(learner: subprocess.Popen[bytes], file: Path, before: tuple[int, int] | None) -> str | None:
    """Waits for the address at which the learner listens, and returns it; None if the learner ended.

    Args:
        learner: Process of the learner.
        file: File with the address; a file of an earlier learner does not count.
        before: Result of :func:`_version` for the file before the learner was started.

    Raises:
        Failed: The learner neither wrote the address nor ended in time.
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
    """Prints the result of the run in two lines."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        say(f"the learner left no summary in {folder}")
        return
    if summary.get("seconds_to_target") is None:
        say(f"ended by {summary.get('stop_reason')} before the target; mean return {summary.get('mean_return_100')}")
    else:
        seconds, steps = summary["seconds_to_target"], summary["env_steps_to_target"]
        say(f"solved after {steps:,} steps, {seconds:.1f} s after the first one; see {folder / 'summary.json'}")
    say(f"trained policy: {summary.get('onnx_path') or 'none was written'}")


def say(text: str) -> None:
    """Prints a text at once, so that it is in order with the output of other processes."""
    print(text, flush=True)  # noqa: T201


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    code = process.wait()
    return code if code >= 0 else 128 - code


def _version(file: Path) -> tuple[int, int] | None:
    """Returns a value that changes when a file is replaced; None if the file does not exist."""
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


if __name__ == "__main__":
    sys.exit(main())
