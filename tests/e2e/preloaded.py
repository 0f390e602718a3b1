"""Starts learners and actors as forks of processes that have loaded their modules, which takes seconds of a core each time.

A fork runs the command line as a new interpreter would: its own environment, folder, output, signals and exit code. Each process of
pytest has one process that forks learners and one that forks actors; they have one thread and end with it.

`python -m tests.e2e.preloaded FD MODULE` serves forks on a socket.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_MESSAGE_BYTES = 1 << 20
_LOAD_SECONDS = 120.0
_POLL_SECONDS = 0.02
_COMMANDS = (("-m", "learner", "serve"), ("-m", "actor_client", "gym"))
_MODULES = {
    "learner": (
        "learner.app",
        "learner.observe.events",
        "learner.publish.unity",
        "learner.run.training",
        "onnxruntime",
    ),
    "actor_client": ("actor_client.app", "actor_client.policy.graph", "gymnasium.envs.classic_control.cartpole"),
}
"""What commands import, also late."""
_ENVIRONMENT = dict(os.environ)
_IS_READ_LATE = ("ROLLCAST_", "PYTEST_", "SDL_", "PYGAME_", "ORT_")
"""Beginnings of variables that nothing reads as modules load; others may change libraries. Modules of tests import pygame,
and `rollcast` sets one of ONNX Runtime."""


class Fork:
    """A fork of the loaded process, with the methods of `subprocess.Popen` that tests use.

    Args:
        pid: Of the fork.
        server: Where its exit code arrives.
    """

    def __init__(self, pid: int, server: _Server) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """Returns its exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it ends and returns its exit code.

        Raises:
            subprocess.TimeoutExpired: It did not end in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it without a chance to clean up."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The other end of a loaded process.

    Args:
        module: Whose modules it has loaded: ``learner`` or ``actor_client``.
    """

    def __init__(self, module: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.preloaded", str(theirs.fileno()), module],
                cwd=Path(__file__).resolve().parents[2],
                env=_ENVIRONMENT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._pids: list[int] = []
        self._take(_LOAD_SECONDS)  # it has loaded

    def fork(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
    ) -> int:
        """Starts ``python -m`` with some arguments and returns the id of the process."""
        request = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
            while not self._pids:
                self._take(_LOAD_SECONDS)
            return self._pids.pop()

    def code(self, pid: int) -> int | None:
        """Returns the exit code of a process that has ended."""
        with self._lock:
            while self._take(0.0):
                pass
            return self._codes.get(pid)

    def _take(self, seconds: float) -> bool:
        """Takes a message; returns whether there was one.

        Raises:
            RuntimeError: The loaded process has ended, or does not answer in time.
        """
        if not select.select([self._socket], [], [], seconds)[0]:
            if seconds:
                raise RuntimeError(f"the process with loaded modules did not answer within {seconds:g} s")
            return False
        if not (data := self._socket.recv(_MESSAGE_BYTES)):
            raise RuntimeError("the process with loaded modules has ended")
        message = json.loads(data)
        if "code" in message:
            self._codes[message["pid"]] = message["code"]
        elif "pid" in message:
            self._pids.append(message["pid"])
        return True


@functools.cache
def _server(module: str) -> _Server:
    return _Server(module)


def can_fork(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Returns whether a command would load in an environment what the loaded process has loaded.

    Args:
        arguments: Of the interpreter.
        environment: The whole.
    """
    words = " ".join(arguments)
    has_own_trainers = "trainer_process" in words or "--trainers" in words  # its service must not have torch
    is_known = tuple(arguments[:3]) in _COMMANDS and not has_own_trainers
    return sys.platform == "linux" and is_known and _early(environment) == _early(_ENVIRONMENT)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_IS_READ_LATE)}


def fork(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]) -> Fork:
    """Starts ``python -m`` with some arguments.

    Args:
        arguments: From the name of the module on.
        cwd: Its working folder.
        environment: Its whole environment.
        out: Standard output.
        err: Standard error.
    """
    server = _server(arguments[1])
    return Fork(server.fork(arguments, cwd, environment, out, err), server)


def _load(module: str) -> None:
    """Imports what a command imports."""
    for name in _MODULES[module]:
        importlib.import_module(name)
    if module == "learner":
        importlib.import_module("learner.trainers.judge").load_meta_device()
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads != 1:
        raise RuntimeError(f"loading the modules of {module} started {threads - 1} threads, which forks would lack")


def _serve(connection: socket.socket) -> Mapping[str, Any] | None:
    """Forks as asked; returns the request in a fork, and None at the end of the connection."""
    children: set[int] = set()
    while True:
        ready = select.select([connection], [], [], _POLL_SECONDS)[0]
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.discard(pid)
                connection.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
        if not ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
        if not data:
            return None
        pid = os.fork()
        if pid == 0:
            connection.close()
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            request: Mapping[str, Any] = json.loads(data)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        children.add(pid)
        connection.send(json.dumps({"pid": pid}).encode())


def main() -> None:
    """Loads, serves, and in a fork runs what was asked for."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for pytest
    _load(sys.argv[2])
    connection.send(b"{}")
    request = _serve(connection)
    if request is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, module, *arguments = request["arguments"]
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
