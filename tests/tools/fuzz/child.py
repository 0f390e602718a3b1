"""Runs one target under atheris; `python -m tests.tools.fuzz` starts it: TARGET, then libFuzzer's arguments."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris
import structlog

from tests.tools.fuzz.target import find

PRODUCT = ["rollcast", "learner", "actor_client"]


def main() -> None:
    """Fuzzes until a finding ends the process."""
    with atheris.instrument_imports(include=PRODUCT, enable_loader_override=False):
        target = find(sys.argv[1])
        target.seeds()  # imports the rest
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), wrapper_class=structlog.BoundLogger)
    logging.disable()
    folder = Path(sys.argv[2])
    words = folder.with_suffix(".words")
    words.write_text("".join(f'"{"".join(f"{_BACKSLASH}x{byte:02x}" for byte in word)}"\n' for word in target.words))
    for name, data in target.seeds().items():
        (folder / f"seed-{name}").write_bytes(data)

    def one(data: bytes) -> None:
        target.accepts(data)

    arguments = [sys.argv[0], *sys.argv[2:], f"-max_len={target.max_bytes}"]
    arguments += [f"-dict={words}"] if target.words else []
    atheris.Setup(arguments, one)
    atheris.Fuzz()


_BACKSLASH = "\\"

if __name__ == "__main__":
    main()
