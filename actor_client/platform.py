"""Differences between operating systems: signals, streams, files, ports, and process groups.

Every call that some system lacks is made here, if this interpreter has it.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rollcast.signals import end_with_parent, handling, ignored, stop_signal_numbers

from actor_client.exits import ExitCode

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

END_SECONDS: Final = 30.0
"""Longest end of a process after its last line."""
_MOST_SHOWN: Final = 8

_STATUS_CONTROL_C_EXIT: Final = 0xC000013A  # of a process on Windows that handles neither Ctrl+C nor Ctrl+Break
_CONNECTIONS: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS: Final = "0A"
"""State of a listening socket in these files."""


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Makes signals that ask the process to end do so at once, until `stop_signals` takes over.

    Python's own handler raises KeyboardInterrupt at any point. During imports some libraries swallow it, and others
    turn it into their own errors. A process that was told to ignore a signal still ignores it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = _end_by_signals()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end_by_signals() -> dict[signal.Signals, Any]:
    """Lets signals that nobody handles end the process at once; returns their handlers from before."""
    unhandled = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for number in stop_signal_numbers() if signal.getsignal(number) in unhandled]
    return {number: signal.signal(number, lambda *_: leave(ExitCode.INTERRUPTED)) for number in numbers}


@contextmanager
def stop_signals(stop: Callable[[str], None], cut: Callable[[], None] | None = None) -> Iterator[None]:
    """Calls `stop` with the name of the first signal that asks the process to end; the second ends it immediately.

    Python runs handlers in the main thread, which may be inside a library for long. A thread reads the signals instead,
    from the socket to which Python writes each at once. Forked processes handle signals as Python does
    (`rollcast.signals`).

    Args:
        stop: Called in that thread.
        cut: Called in that thread before the second signal ends the process; it must take no lock.
    """
    seen: list[str] = []

    def handle(number: int) -> None:
        name = signal.Signals(number).name
        if seen and name == "SIGHUP":
            return  # a closing terminal sends several hangups; they count as one
        if seen:
            os.write(2, f"{name} again: ended at once\n".encode())
            if cut is not None:
                cut()
            leave(ExitCode.INTERRUPTED)
        seen.append(name)
        stop(name)

    numbers = frozenset(stop_signal_numbers())
    with handling(ignored), _read_by_thread(numbers, handle):
        yield


@contextmanager
def _read_by_thread(numbers: frozenset[int], handle: Callable[[int], None]) -> Iterator[None]:
    """Calls `handle` in a thread with each signal of `numbers`; they need handlers, or Python does not report them."""
    process = os.getpid()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def read() -> None:
        while arrived := reader.recv(64):
            for number in filter(numbers.__contains__, arrived):
                handle(number)

    thread = threading.Thread(target=read, name="rollcast-signals", daemon=True)
    thread.start()
    earlier = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        if os.getpid() == process:  # not in a forked process that leaves the block: the socket is also its parent's
            signal.set_wakeup_fd(earlier)
            writer.shutdown(socket.SHUT_RDWR)  # closing it ends nothing if a forked process has it open, too
            thread.join()
            writer.close()
            reader.close()


def limit_end() -> None:
    """Lets the end of this process take `END_SECONDS` at most, and a signal then end it at once; call it at its start.

    When everything is done and said, Python waits for threads and for processes of `multiprocessing` that user code has
    left, and calls its functions for the end (`atexit`, `__del__`), none of which need return. A handler of Python's would
    wait for the main thread, which may begin to wait for a lock just as the signal comes: so a thread reads the signals, too.
    """
    handlers = {int(number): signal.getsignal(number) for number in _end_by_signals()}
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)

    def wait() -> None:
        threading.main_thread().join()  # it counts as ended when Python begins to wait for the others
        until = time.monotonic() + END_SECONDS
        while (left_seconds := until - time.monotonic()) > 0:
            reader.settimeout(left_seconds)
            with suppress(TimeoutError):
                arrived = handlers.keys() & set(reader.recv(64))
                if any(signal.getsignal(number) is handlers[number] for number in arrived):
                    leave(ExitCode.INTERRUPTED)
        left = [thread.name for thread in threading.enumerate() if thread.is_alive() and not thread.daemon]
        left += [f"process {child.pid}" for child in _children()]
        what = f": the environment's code has left {', '.join(left[:_MOST_SHOWN])} running" if left else ""
        code = ExitCode.ENVIRONMENT_HANGS
        os.write(
            2, f"error: this process did not end within {END_SECONDS:g} s{what} (exit code {code.value})\n".encode()
        )
        leave(code)

    threading.Thread(target=wait, name="rollcast-end", daemon=True).start()


def start_process(
    command: Sequence[str], *, output: int | None, source: int = subprocess.DEVNULL, ends_with_parent: bool = False
) -> "subprocess.Popen[bytes]":
    """Starts a process that Ctrl+C in this terminal does not reach, in its own process group if the system has them.

    Args:
        command: Program and arguments, without a shell.
        output: Its output, as in `subprocess`; None means this terminal.
        source: Where its input comes from, as `subprocess` names it.
        ends_with_parent: Ask it to end when this process is killed, if the system supports it.

    Raises:
        OSError: The process cannot be started.
    """
    return subprocess.Popen(  # noqa: S603 - the program that the user named
        command,
        stdin=source,
        stdout=output,
        stderr=subprocess.STDOUT if output == subprocess.PIPE else output,
        **_group_options(ends_with_parent=ends_with_parent),
    )


def _group_options(*, ends_with_parent: bool) -> dict[str, Any]:
    """Returns the arguments of `Popen` for a new process group."""
    if hasattr(subprocess, "CREATE_NEW_PROCESS_GROUP"):
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    if hasattr(os, "setsid"):
        return {"start_new_session": True, "preexec_fn": end_with_parent() if ends_with_parent else None}
    return {}


def ask_to_end(process: "subprocess.Popen[bytes]") -> None:
    """Asks a process of `start_process` to end: by SIGTERM, or on Windows by Ctrl+Break."""
    request = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)
    try:
        process.send_signal(request)
    except OSError:  # Windows without a console has no graceful way
        process.terminate()


def was_asked_to_end(code: int) -> bool:
    """Returns whether a process ended by the signal of `ask_to_end` without handling it.

    Args:
        code: The exit code from `subprocess`.
    """
    return code in (-signal.SIGTERM, _STATUS_CONTROL_C_EXIT)


def end_process(process: "subprocess.Popen[bytes]", *, at_once: bool) -> None:
    """Asks a process of `start_process` to end, or kills it; includes its children if it has a process group.

    Args:
        process: The process; it may have ended already while its children still run.
        at_once: Kill it instead of asking it.
    """
    with suppress(OSError):  # all of it has ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.Signals["SIGKILL" if at_once else "SIGTERM"])
        elif not at_once:
            ask_to_end(process)
        elif (tool := _windows_tool("taskkill.exe")).is_file():
            subprocess.run([tool, "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)  # noqa: S603
        else:
            process.kill()


def _windows_tool(name: str) -> Path:
    return Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / name


def own_user() -> int | None:
    """Returns the user id of this process; None where the system has none."""
    return os.getuid() if hasattr(os, "getuid") else None


def users_of_connection(peer_port: int, own_port: int) -> frozenset[int] | None:
    """Returns the users whose sockets are the far ends of connections to a port of this machine.

    Args:
        peer_port: Port of the far end, on this machine.
        own_port: Port of this process, on which it listens.

    Returns:
        User ids; empty if the connection has ended. None where the system does not say.
    """
    users, is_told = set(), False
    for name in _CONNECTIONS:
        try:
            lines = Path(name).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) < 8:
                continue
            local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
            is_told |= local == own_port and fields[3] == _LISTENS
            if (local, remote) == (peer_port, own_port):
                users.add(int(fields[7]))
    return frozenset(users) if is_told or users else None


def describe_exit(code: int) -> str:
    """Returns how a process ended, in words: its exit code, or the name of a signal.

    Args:
        code: The exit code from `subprocess`: negative for a signal.
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        word = signal.strsignal(-code) or ""
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    return f"was ended by {name} ({word.lower()})" if word else f"was ended by {name}"


def exit_at_once(code: int) -> NoReturn:
    """Ends this process and the processes of `multiprocessing`, even if a thread does not return; writes buffered output.

    Args:
        code: The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    leave(code)


def leave(code: int) -> NoReturn:
    """Ends this process like `exit_at_once`, but takes no lock and leaves buffered output: for signals.

    Args:
        code: The exit code.
    """
    for child in _children():
        child.kill()
    os._exit(code)


def _children() -> "list[BaseProcess]":
    multiprocessing = sys.modules.get("multiprocessing")
    return [] if multiprocessing is None else multiprocessing.active_children()
