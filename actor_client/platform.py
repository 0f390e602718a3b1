"""Differences between operating systems: signals, and processes that are started and ended with all they started."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from actor_client.exits import ExitCode

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Lets Ctrl+C end the process as the operating system does, until `stop_signals` takes over.

    Python's own handler raises KeyboardInterrupt wherever the program is. Amid the imports of a start, some libraries
    swallow it, and others turn it into errors of their own. A process that was told to ignore Ctrl+C goes on to.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_signals(stop: Callable[[str], None], cut: Callable[[], None] | None = None) -> Iterator[None]:
    """Calls `stop` with the name of the first signal that asks the process to end; the second ends it at once.

    Args:
        stop: Runs inside a signal handler: it must take no lock.
        cut: What is left to do when the second signal ends the process at once; the same holds for it.
    """
    seen: list[str] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if seen and name == "SIGHUP":
            return  # a terminal that closes says so more than once: nobody is in a hurry
        if seen:
            os.write(2, f"{name} again: ended at once\n".encode())
            if cut is not None:
                cut()
            os._exit(ExitCode.INTERRUPTED)
        seen.append(name)
        stop(name)

    previous = {number: signal.signal(number, handle) for number in stop_signal_numbers()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def stop_signal_numbers() -> tuple[signal.Signals, ...]:
    """Returns the signals that ask a process to end: Ctrl+C, a supervisor's, a closed terminal's, Windows' Ctrl+Break.

    Behind nohup the terminal's is ignored, and stays so.
    """
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    there = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    return tuple(each for each in there if each.name != "SIGHUP" or signal.getsignal(each) is not signal.SIG_IGN)


def start_process(
    command: Sequence[str], *, output: int | None, ends_with_parent: bool = False
) -> "subprocess.Popen[bytes]":
    """Starts a process that a Ctrl+C in this terminal does not reach, in a group of its own where there are groups.

    Args:
        command: Program and arguments; no shell reads them.
        output: Where its output goes, as `subprocess` says it; None leaves it on this terminal.
        ends_with_parent: It is asked to end when this thread's process is killed, where the system can do that.

    Raises:
        OSError: It cannot be started.
    """
    stderr = subprocess.STDOUT if output == subprocess.PIPE else output
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP
        return subprocess.Popen(  # noqa: S603 - the program that the user named
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=stderr, creationflags=flags
        )
    return subprocess.Popen(  # noqa: S603 - see above
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_end_with_parent() if ends_with_parent else None,  # noqa: PLW1509 - one system call
    )


def _end_with_parent() -> Callable[[], object] | None:
    """Returns what a new process calls to be asked to end with its parent; None where the system has no such call."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - most processes never need it

    control = ctypes.CDLL(None).prctl  # before the fork: afterwards a lock may be held for ever
    return lambda: control(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def end_process(process: "subprocess.Popen[bytes]", *, at_once: bool) -> None:
    """Asks a process of `start_process` to end, or ends it; with it goes all it started, where there are groups.

    Args:
        process: The same; it may have ended already, and what it started be left over.
        at_once: Ends it, where a request could be ignored.
    """
    with suppress(OSError):  # nothing is left of it
        if sys.platform != "win32":
            os.killpg(process.pid, signal.SIGKILL if at_once else signal.SIGTERM)
        elif at_once:
            tool = os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "taskkill.exe")  # noqa: PTH118
            subprocess.run([tool, "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)  # noqa: S603
        else:
            process.terminate()


def describe_exit(code: int) -> str:
    """Returns how a process ended: by its exit code, or by a signal, which is named.

    Args:
        code: As `subprocess` gives it: negative for a signal.
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        word = signal.strsignal(-code) or ""
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    return f"was ended by {name} ({word.lower()})" if word else f"was ended by {name}"
