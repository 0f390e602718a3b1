"""Starts commands as forks of processes that have loaded their modules, which takes seconds of a core each time.

`install` replaces `subprocess.Popen` by `Popen`, in the process of the tests and in each fork: whatever starts a command of Rollcast
by this interpreter, a test or a learner that starts its trainers, gets a fork. It runs the command line as a new interpreter would,
with its own environment, folder, descriptors, signals, session and exit code. Each process of pytest has three servers of forks: one
has loaded what a service runs, one what trainers run, which is torch, and one what actors run. They have one thread and end with it.

At its end a fork does not delete its objects, nor unload libraries. A test of that gives the command a variable such as TZ, with which
it is a new interpreter.

`python -m tests.e2e.preloaded KIND TESTS LISTENER LIFE` serves forks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import re
import runpy
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rollcast import signals

_ROOT: Final = Path(__file__).resolve().parents[2]
_MESSAGE_BYTES: Final = 1 << 20
_MOST_DESCRIPTORS: Final = 64
_LOAD_SECONDS: Final = 300.0
_FIRST_FREE: Final = 200
"""Descriptors of a fork wait above this number until those below are free."""
_SHOWN_BYTES: Final = 4096
"""Bytes of the command line that ``/proc`` shows of a fork."""
_SERVICE: Final = (
    "learner.start.app",
    "learner.cli.cli",
    "learner.cli.status",
    "learner.start.trainer_process",
    "learner.start.training",
    "learner.service.run.front",
    "learner.training.writers.events",
    "learner.shared.settings.check",
)
_TRAINERS: Final = (
    "learner.start.evaluate_run",
    "learner.start.tournament_run",
    "learner.training.optimizers.ranks",
    "learner.training.export.unity",
    "learner.training.run.following",
    "learner.training.run.training",
    "learner.training.trainers.memory_estimate",
    "onnx",
    "onnxruntime",
    "torch.distributed.run",
)
_ACTORS: Final = (
    "actor_client.boards.app",
    "actor_client.cli",
    "actor_client.conform.app",
    "actor_client.dm_env_rpc.app",
    "actor_client.godot.app",
    "actor_client.gym.app",
    "actor_client.pettingzoo.app",
    "actor_client.policy.graph",
    "actor_client.unity.app",
    "actor_client.unity.dropin.cli",
    "actor_client.metrics",
    "gymnasium.envs.classic_control.cartpole",
    "tests.tools.players.cli",
)
_MODULES: Final = {"service": _SERVICE, "trainers": (*_SERVICE, *_TRAINERS), "actors": _ACTORS}
"""What the commands of each kind import, also late."""
_KINDS: Final = {
    "learner": "service",
    "learner.start.trainer": "trainers",
    "learner.start.ranks": "service",
    "torch.distributed.run": "trainers",
    "actor_client": "actors",
    "actor_client.unity.dropin": "actors",
    "rollcast": "service",
    "rollcast.watched": "actors",
    "tests.tools.players": "actors",
}
_IS_READ_LATE: Final = (
    *("ROLLCAST_", "PYTEST_", "SDL_", "PYGAME_", "ORT_", "TMPDIR", "COLUMNS", "LINES", "NO_COLOR"),
    *("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "grpc_proxy", "no_proxy", "NO_PROXY"),
    *("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "PET_", "TORCHELASTIC_", "TORCH_NCCL_", "GLOO_"),
)
"""Beginnings of variables that nothing reads as modules load; others may change libraries. Modules of tests import pygame,
and `rollcast` sets one of ONNX Runtime."""
_QUIET: Final = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""What every command or `rollcast` sets before gRPC is loaded, if it is not set."""
_INTERRUPT: Final = signal.SIGINT
_BUILD: Final = re.compile(r' exec (.* -m tests\.tools\.players .*) "\$@"$', re.MULTILINE)
"""The line of `tests.tools.players.build` that starts the player, from a copy of the modules that a fork has loaded."""

_environment: dict[str, str] = {}
"""Of the process of the tests, when `install` was called."""
_tests = 0
"""Id of the process of the tests."""
_servers: list[tuple[int, subprocess.Popen[bytes]]] = []
"""In the process of the tests: the end of the life of each server, and the server."""


class Popen(subprocess.Popen[Any]):
    """Starts a process: a fork of a loaded one for the commands of Rollcast, else a new program, as `subprocess.Popen` does.

    Attributes:
        is_fork: True for a fork.
        link: Where the exit code of a fork comes from; its server takes the end of it as that of this process.
    """

    is_fork = False
    link: socket.socket

    def __del__(self) -> None:
        """Closes what the end of a fork arrived by, which another thread may wait for until then."""
        if self.is_fork:
            self.link.close()
        super().__del__()

    def _execute_child(  # noqa: PLR0917 - of the standard library
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        _startupinfo, _creationflags, shell, *descriptors = rest[:9]
        more = rest[9:]  # restore_signals, gid, gids, uid, umask, start_new_session, process_group
        words = [] if shell or isinstance(args, str | bytes | os.PathLike) else [os.fspath(word) for word in args]
        words = _of_build(words)
        whole = dict(os.environ if env is None else env)
        own, their_end = _after(words), _signal_of(preexec_fn)
        is_plain = executable in {None, sys.executable} and more[1:5] == (None, None, None, -1)
        stdin, _, _, stdout, _, stderr = descriptors
        streams = [stdin if stdin != -1 else 0, stdout if stdout != -1 else 1, stderr if stderr != -1 else 2]
        if own is None or their_end is None or not is_plain or not can_fork(whole):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)  # type: ignore[misc]
            return
        module, arguments = own
        request = {
            "arguments": arguments,
            "module": module,
            "shown": words,
            "cwd": os.path.abspath(cwd or os.curdir),  # noqa: PTH100 - keeps links, as a new process does
            "environment": whole,
            "descriptors": [0, 1, 2, *pass_fds],
            "owner": os.getpid(),
            "is_unbuffered": "-u" in words[:2],
            "has_session": more[5],
            "session": os.getsid(0),
            "group": os.getpgrp(),
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "ignored": [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN],
            "umask": _umask(),
            "end": their_end,
        }
        try:
            self.link = connect(_kind_of(module, arguments))
            self.is_fork = True
            self._lock = threading.Lock()
            socket.send_fds(self.link, [json.dumps(request).encode()], [*streams, *pass_fds])
            self.pid = json.loads(self.link.recv(_MESSAGE_BYTES))
        finally:
            self._close_pipe_fds(*descriptors)  # type: ignore[attr-defined]
        self._child_created = True

    def _internal_poll(self, *arguments: Any, **named: Any) -> int | None:
        if not self.is_fork:
            code: int | None = super()._internal_poll(*arguments, **named)  # type: ignore[misc]
            return code
        with self._lock:
            if self.returncode is None and self._has_come(0.0):
                data = self.link.recv(_MESSAGE_BYTES)
                self.returncode = json.loads(data) if data else -signal.SIGKILL  # without its server nobody knows
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not self.is_fork:
            code: int = super()._wait(timeout)  # type: ignore[misc]
            return code
        if self._internal_poll() is None:
            self._has_come(timeout)
        if self._internal_poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _has_come(self, timeout: float | None) -> bool:
        """Waits for the exit code; returns whether it is there."""
        poll = select.poll()  # one for each thread that waits
        poll.register(self.link, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(timeout, 0.0) * 1000.0))


def install() -> None:
    """Lets this process start commands as forks, from now on."""
    global _tests  # noqa: PLW0603 - of the process
    _tests = _tests or os.getpid()
    _environment.update(os.environ)
    subprocess.Popen = Popen  # type: ignore[misc]


def can_fork(environment: Mapping[str, str]) -> bool:
    """Returns whether a command would load in an environment what the loaded processes have loaded.

    Args:
        environment: The whole.
    """
    return sys.platform == "linux" and _early(environment) == _early(_environment)


def children_of(pid: int) -> list[int]:
    """Returns the child processes of a process, also those that are forks; none of one that has ended."""
    found = [child for kind in _MODULES for child in _ask(kind, owner=pid)] if _servers else []
    try:
        real = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        real = []
    return sorted({*real, *found})


def _ask(kind: str, **question: int) -> list[int]:
    """Asks a server for the forks that have an owner, or tells it that a fork ends with its owner."""
    with connect(kind) as link:
        link.send(json.dumps(question).encode())
        answer: list[int] = json.loads(link.recv(_MESSAGE_BYTES))
    return answer


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    early = {name: value for name, value in environment.items() if not name.startswith(_IS_READ_LATE)}
    return {**_QUIET, **early}


def _after(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Returns module and arguments of a command line of this interpreter that forks can run; None for others."""
    if not words or words[0] != sys.executable:
        return None
    begin = 2 if words[1:2] == ["-u"] else 1
    if words[begin : begin + 1] != ["-m"] or words[begin + 1 : begin + 2] == [] or words[begin + 1] not in _KINDS:
        return None
    return words[begin + 1], list(words[begin + 2 :])


def _of_build(words: list[str]) -> list[str]:
    """Returns the command that the script of a scripted player's build runs; other commands as they are."""
    if not words or not words[0].endswith(".x86_64") or not Path(words[0]).is_file():
        return words
    found = _BUILD.search(Path(words[0]).read_text(encoding="utf-8", errors="replace"))
    return words if found is None else [*shlex.split(found[1]), *words[1:]]


def _kind_of(module: str, arguments: Sequence[str]) -> str:
    """Returns which server forks a command."""
    has_torch = {"evaluate", "tournament", "trainer"}.intersection(arguments[:1])
    if module == "rollcast" and {"act", "join", "play", "unity"}.intersection(arguments[:1]):
        return "actors"
    in_threads = "rollcast.trainer_process=false" in arguments
    return "trainers" if module in {"learner", "rollcast"} and (has_torch or in_threads) else _KINDS[module]


def _signal_of(before_exec: Callable[[], object] | None) -> int | None:
    """Returns the signal that a process gets when its parent ends, 0 for none; None if its `preexec_fn` does something else."""
    if before_exec is None:
        return 0
    if inspect.unwrap(before_exec).__qualname__ != f"{signals.end_with_parent.__name__}.<locals>.<lambda>":
        return None
    return int(inspect.getclosurevars(before_exec).nonlocals["number"])


def _umask() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
    return int(line.split()[1], 8)


def _address(kind: str) -> str:
    return f"\0rollcast-tests-{_tests}-{kind}"


def connect(kind: str) -> socket.socket:
    """Connects to a server; the first time, the process of the tests starts all, since one fork may start another."""
    if os.getpid() == _tests and not _servers:
        _servers.extend(map(_start, _MODULES))
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(_address(kind))
    return link


def _start(kind: str) -> tuple[int, subprocess.Popen[bytes]]:
    """Starts a server; it is reachable at once, and answers when it has loaded."""
    ending, life = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(_address(kind))
        listener.listen(64)
        numbers = listener.fileno(), ending
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.preloaded", kind, str(_tests), *map(str, numbers), "-" * _SHOWN_BYTES],
            cwd=_ROOT,
            env={**_environment, **_QUIET},
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    os.close(ending)
    return life, process


@dataclass
class _Child:
    """A fork that runs."""

    pid: int
    owner: int
    end: int
    """The signal that it gets when its owner ends, 0 for none."""
    ended: int
    """Descriptor that can be read once it has ended."""
    link: socket.socket
    """Where its exit code goes, and whose end is that of its owner."""


class _Server:
    """Forks as asked.

    Args:
        listener: Gets requests.
        life: Descriptor that can be read once the process of the tests has ended.
    """

    def __init__(self, listener: socket.socket, life: int) -> None:
        self._listener = listener
        self._life = life
        self._ready = selectors.DefaultSelector()
        self._ready.register(listener, selectors.EVENT_READ, self._accept)
        self._children: dict[int, _Child] = {}
        self._links: set[socket.socket] = set()

    def run(self) -> Mapping[str, Any] | None:
        """Serves; returns the request in a fork, and None at the end of the tests."""
        self._ready.register(self._life, selectors.EVENT_READ)
        while True:
            for key, _ in self._ready.select():
                if self._ready.get_map().get(key.fd) is not key:  # an event before it in this round has ended it
                    continue
                if key.data is None:
                    return None
                if (request := key.data(key.fileobj)) is not None:
                    return request  # type: ignore[no-any-return]

    def _accept(self, listener: socket.socket) -> None:
        link, _ = listener.accept()
        self._links.add(link)
        self._ready.register(link, selectors.EVENT_READ, self._asked)

    def _asked(self, link: socket.socket) -> Mapping[str, Any] | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(link, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
        except ConnectionError:  # whoever asked has ended
            data, descriptors = b"", []
        request: Mapping[str, Any] = json.loads(data or "{}")
        if "module" not in request:
            if request:
                _tell(link, self._answer(request))
            self._forget(link)
            return None
        pid = os.fork()
        if pid == 0:
            self._leave()
            _take_over(descriptors, request["descriptors"])
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        child = _Child(pid, request["owner"], request["end"], os.pidfd_open(pid), link)
        self._children[pid] = child
        self._ready.modify(link, selectors.EVENT_READ, lambda _: self._owner_ended(child))
        self._ready.register(child.ended, selectors.EVENT_READ, lambda _: self._ended(child))
        _tell(link, pid)
        return None

    def _answer(self, question: Mapping[str, Any]) -> Any:
        child = self._children.get(question.get("ending", 0))
        if child is not None:  # else it has been killed since it asked
            child.end = signal.SIGKILL
            if child.link not in self._links:  # its owner has ended already
                os.kill(child.pid, child.end)
        return [child.pid for child in self._children.values() if child.owner == question.get("owner")]

    def _owner_ended(self, child: _Child) -> None:
        self._forget(child.link)
        if child.end:
            os.kill(child.pid, child.end)

    def _ended(self, child: _Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        del self._children[child.pid]
        self._ready.unregister(child.ended)
        os.close(child.ended)
        if child.link in self._links:
            _tell(child.link, os.waitstatus_to_exitcode(status))
            self._forget(child.link)

    def _forget(self, link: socket.socket) -> None:
        self._ready.unregister(link)
        self._links.discard(link)
        link.close()

    def _leave(self) -> None:
        """Closes what a fork must not have."""
        self._ready.close()
        self._listener.close()
        os.close(self._life)
        for link in self._links:
            link.close()
        for child in self._children.values():
            os.close(child.ended)


def _tell(link: socket.socket, answer: object) -> None:
    """Sends an answer to whoever asked, who may have ended."""
    with contextlib.suppress(OSError):
        link.send(json.dumps(answer).encode())


def _take_over(received: Sequence[int], numbers: Iterable[int]) -> None:
    """Gives received descriptors the numbers that a process inherits them by."""
    import fcntl  # not on Windows, where types are checked too

    waiting = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST_FREE) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(waiting, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _become(request: Mapping[str, Any]) -> None:
    """Makes this fork what a new process would be."""
    if request["has_session"]:
        os.setsid()
    elif os.getsid(0) == request["session"]:
        os.setpgid(0, request["group"])
    for number in request["ignored"]:
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
    if _INTERRUPT not in request["ignored"]:
        signal.signal(_INTERRUPT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["cwd"]
    sys.argv[1:] = request["arguments"]
    sys.orig_argv[:] = request["shown"]
    _show(request["shown"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # those of the server know what its descriptors were
        before = getattr(sys, f"__{name}__")
        stream = os.fdopen(
            number, "w" if number else "r", encoding=before.encoding, errors=before.errors, closefd=False
        )
        if number:
            is_direct = request["is_unbuffered"] or before.write_through
            stream.reconfigure(line_buffering=number == 2 or stream.line_buffering, write_through=is_direct)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _show(words: Sequence[str]) -> None:
    """Lets ``/proc`` show a command line as that of this process, in place of the server's."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49 of proc(5)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


def _load(kind: str) -> None:
    """Imports what a kind of command imports."""
    for name in _MODULES[kind]:
        importlib.import_module(name)
    if kind == "trainers":
        importlib.import_module("learner.training.trainers.memory_estimate").load_meta_device()
    elif "torch" in sys.modules:
        raise RuntimeError(f"the modules of {kind} load torch")
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads != 1:
        raise RuntimeError(f"loading the modules of {kind} started {threads - 1} threads, which forks would lack")
    # Collections of a fork, above all the one at its end, would go through all that is loaded, and copy each of its pages.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Loads, serves, and in a fork runs what was asked for."""
    global _tests  # noqa: PLW0603 - of the process
    kind, tests, listener, life = sys.argv[1:5]
    _tests = int(tests)
    install()

    def die_with_owner() -> None:  # the system would watch this server, which is the parent of all forks
        _ask(kind, ending=os.getpid())

    signals.die_with_parent = die_with_owner
    signal.signal(_INTERRUPT, signal.SIG_IGN)  # a terminal's Ctrl-C is for pytest
    _load(kind)
    request = _Server(socket.socket(fileno=int(listener)), int(life)).run()
    if request is None:
        return
    _become(request)
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            _end(ended.code or 0)
        raise


def _end(code: int) -> None:
    """Ends a fork as Python does, but leaves its objects as they are, whose end would copy and free each page of what was loaded."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
