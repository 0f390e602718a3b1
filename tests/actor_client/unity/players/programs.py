"""Tiny players for tests: shell scripts, and one that greets and then sends nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SECONDS = 60.0

GREETER = """\
import sys, time
import grpc
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto

port = sys.argv[sys.argv.index("--mlagents-port") + 1]
call = grpc.insecure_channel("localhost:" + port).unary_unary("/communicator_objects.UnityToExternalProto/Exchange")

def exchange(message):
    return UnityMessageProto.FromString(call(message.SerializeToString()))

hello = UnityMessageProto()
hello.header.status = 200
said = hello.unity_output.rl_initialization_output
said.communication_version = VERSION
said.package_version = "3.0.0"
exchange(hello)
AFTER
"""
LEAVES = """
bye = UnityMessageProto()
bye.header.status = 400
exchange(bye)
"""


def script(folder: Path, body: str, name: str = "Build") -> Path:
    """Makes a build that is a shell script."""
    path = folder / f"{name}.x86_64"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def greeter(folder: Path, after: str, *, version: str = "1.5.0") -> Path:
    """Makes a build that sends its first message, and then does what `after` says, in Python."""
    code = folder / "greeter.py"
    code.write_text(GREETER.replace("VERSION", repr(version)).replace("AFTER", after))
    return script(folder, f'exec {sys.executable} {code} "$@"')


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Waits until something holds; how long that takes says nothing."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Returns whether a process runs; one that has ended and is not waited for does not."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in {"Z", "X"}
    return False
