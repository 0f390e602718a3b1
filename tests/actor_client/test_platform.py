"""Tests processes and signals, with and without POSIX features."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from rollcast.signals import stop_signal_numbers

from actor_client.platform import (
    ask_to_end,
    describe_exit,
    end_process,
    start_process,
    was_asked_to_end,
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (137, "ended with exit code 137"),
        (3221225477, "ended with exit code 3221225477"),
        (-9, "was ended by SIGKILL (killed)"),
        (-11, "was ended by SIGSEGV (segmentation fault)"),
        (-40, "was ended by signal 40"),
        (-4000, "was ended by signal 4000"),
    ],
)
def test_exits_in_words(code: int, words: str) -> None:
    """Exit codes are shown as numbers, and signals by name if they have one."""
    assert describe_exit(code) == words


def test_a_closed_terminal_is_no_signal_behind_nohup() -> None:
    """A process under nohup continues to ignore SIGHUP."""
    assert signal.SIGHUP in stop_signal_numbers()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in stop_signal_numbers()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert {signal.SIGINT, signal.SIGTERM} <= set(stop_signal_numbers())


@pytest.mark.slow
@pytest.mark.parametrize("lacks", [(), ("killpg",), ("killpg", "setsid")])
def test_processes_end_with_and_without_groups(lacks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes end by request and by force, with and without process groups."""
    for name in lacks:
        monkeypatch.delattr(os, name)
    for at_once in (False, True):
        process = start_process([sys.executable, "-c", "import time; time.sleep(600)"], output=subprocess.DEVNULL)
        end_process(process, at_once=at_once)
        code = process.wait(300)
        assert code == (-signal.SIGKILL if at_once else -signal.SIGTERM)
        assert was_asked_to_end(code) is not at_once
        end_process(process, at_once=at_once)  # it is gone: nothing happens


def _start_program(program: str) -> subprocess.Popen[str]:
    """Starts an interpreter that prints a line when it is ready."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_forked_processes_handle_signals_as_python_does() -> None:
    """SIGTERM ends a forked process, also a newborn one, and not its parent; one left alive does not hold the parent up."""
    program = """
import os, signal, sys, threading
from actor_client.platform import plain_interrupts, stop_signals

threading.Thread(target=threading.Event().wait, daemon=True).start()  # it could take the signals in the place of the main thread
seen, arrived = [], threading.Event()
with plain_interrupts(), stop_signals(lambda name: (seen.append(name), arrived.set())):
    for _ in range(100):
        child = os.fork()
        if child == 0:
            signal.pause()
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    if os.fork() == 0:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        sys.exit(5)  # leaves the blocks
    assert os.wait()[1] == 5 << 8
    assert not seen, seen
    left = os.fork()
    if left == 0:
        signal.pause()
    print("ready", flush=True)
    arrived.wait()
os.kill(left, signal.SIGKILL)
"""
    with _start_program(program) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "said"),
    [
        (
            "import threading; threading.Thread(target=threading.Event().wait, name='server').start()",
            "left server running",
        ),
        ("import multiprocessing as m, signal; m.Process(target=signal.pause).start()", "left process "),
        ("import atexit, threading; atexit.register(threading.Event().wait)", "within 1 s (exit code 44)"),
    ],
)
def test_a_process_ends_whatever_user_code_has_left(left: str, said: str) -> None:
    """Threads, processes and functions for the end cannot keep a command alive that is done; a signal need not wait."""
    program = f"from actor_client import platform\nplatform.END_SECONDS = {{}}\nplatform.limit_end()\n{left}\nprint('ready', flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", program.format("1.0")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 44
    assert said in done.stderr
    with _start_program(program.format("600.0")) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 130


@pytest.mark.slow
def test_a_signal_that_does_not_wake_the_main_thread_ends_the_process() -> None:
    """Another thread may get the signal, or the main thread begin to wait just as it comes: its handler would never run."""
    program = """
import atexit, signal, threading
from actor_client import platform

platform.END_SECONDS = 600.0
platform.limit_end()
atexit.register(threading.Event().wait)

def signal_this_thread():
    threading.main_thread().join()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=signal_this_thread, daemon=True).start()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=300, check=False).returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("module", ["learner.cli.cli", "actor_client.cli"])
def test_a_signal_during_the_start_ends_a_command_with_130(module: str, number: signal.Signals) -> None:
    """All signals that ask a process to end do so at once, with the documented exit code."""
    program = f"""
import time, sys
import {module} as cli

def _run(*_):
    print("ready", flush=True)
    time.sleep(600)

cli._run = _run
sys.exit(cli.main([]))
"""
    with _start_program(program) as process:
        process.send_signal(number)
        assert process.wait(300) == 130


@pytest.mark.slow
@pytest.mark.parametrize(("number", "ends"), [(signal.SIGUSR1, signal.SIGUSR1), (10_000, signal.SIGTERM)])
def test_windows_has_a_request_that_a_process_can_handle(
    monkeypatch: pytest.MonkeyPatch, number: int, ends: signal.Signals
) -> None:
    """On Windows the request to end is Ctrl+Break, or SIGTERM where it cannot be sent, without a console."""
    process = start_process([sys.executable, "-c", "import time; time.sleep(600)"], output=subprocess.DEVNULL)
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", number, raising=False)
    ask_to_end(process)
    assert process.wait(300) == -ends


def test_who_was_asked_to_end_is_known() -> None:
    """The exit code of Ctrl+Break is that of a process that was asked to end."""
    assert was_asked_to_end(0xC000013A)
    assert not was_asked_to_end(0)
