"""Takes from the product's processes what Python lacks on Windows; Python imports this at start if it is on the path.

Players and other programs that the product starts keep everything. ``STRIPPED_NAMES`` is a file with the lists of `names`.
"""

from __future__ import annotations

import enum
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

PRODUCT: Final = ("learner", "actor_client")

KEPT: Final = {
    "os": {"WNOHANG", "waitpid", "uname", "register_at_fork"},  # subprocess; numpy; torch
    "signal": {"SIGKILL"},  # subprocess
}
"""Names that Python's own library and the libraries beneath the product require on this system."""


def _is_product() -> bool:
    words = sys.orig_argv
    return "-m" in words and words[words.index("-m") + 1].partition(".")[0] in PRODUCT


def _strip() -> None:
    # First what looks at the system once, when it is imported.
    import asyncio
    import multiprocessing.connection
    import multiprocessing.context
    import random
    import signal
    import socket
    import subprocess
    import tempfile
    import time
    import types

    # Pipes of Windows do not exist here.
    vars(multiprocessing.connection)["socket"] = types.SimpleNamespace(**vars(socket))
    pair = functools.partial(socket.socketpair, socket.AF_UNIX)  # this system has no pairs of another family
    lists = json.loads(Path(os.environ["STRIPPED_NAMES"]).read_text(encoding="utf-8"))
    modules = {"os": os, "signal": signal, "socket": socket, "asyncio": asyncio, "time": time}
    for module, names in lists["names"].items():
        for name in names:
            if name not in KEPT.get(module, ()) and hasattr(modules[module], name):
                delattr(modules[module], name)
    socket.socketpair = pair
    present = {each.name: each.value for each in signal.Signals if each.name not in lists["names"]["signal"]}
    signal.Signals = enum.IntEnum("Signals", present)  # type: ignore[misc]
    for name in lists["modules"]:
        sys.modules[name] = None  # type: ignore[assignment]

    def missing(*_arguments: Any) -> None:
        raise NotImplementedError

    for loop in (asyncio.selector_events.BaseSelectorEventLoop, asyncio.unix_events._UnixSelectorEventLoop):
        for name in ("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler"):
            setattr(loop, name, missing)
    assert all((multiprocessing.context, random, subprocess, tempfile))


if _is_product():
    _strip()
