"""Names from outside, made fit for file names."""

from __future__ import annotations

import hashlib

from learner.settings.names import name_problem

_OWN_NAMES = frozenset(
    {"run_logs", "generation", "configuration.yaml", "configuration_sources.json", "address.json", "summary.json"}
    | {"events.jsonl", "logs", "operator_token", "progress.json", "versions.json", "wandb", "wandb_id"}
)
_OWN_SUFFIXES = (".onnx", ".pt", ".tmp")
LAST = "last"
"""The word for the newest checkpoint of all: the run state."""
_MAX_BYTES = 160
"""Of a folder name. File systems allow 255 bytes, and ``-<step>.onnx`` is added."""


def safe_name(name: str) -> str:
    """Returns a file name for a behavior: its own name where that is possible, else one that resembles it.

    A changed name ends in eight hexadecimal digits of the original's SHA-256, so that no two behaviors share a folder.
    The result has no separators, does not begin with a dot, and is none of the run folder's own names.
    """
    encoded = name.encode("utf-8", "replace")
    if name_problem(name) is None and _is_free(name) and len(encoded) <= _MAX_BYTES:
        return name
    kept = "".join(character if name_problem(f"x{character}x") is None else "_" for character in name)
    kept = kept.strip(" .").encode("utf-8", "replace")[: _MAX_BYTES - 9].decode("utf-8", "ignore").strip(" .")
    digest = hashlib.sha256(encoded).hexdigest()[:8]
    return f"{kept or 'behavior'}-{digest}"


def _is_free(name: str) -> bool:
    return name not in _OWN_NAMES and not name.startswith("run_state.") and not name.endswith((".", *_OWN_SUFFIXES))
