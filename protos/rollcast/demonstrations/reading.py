"""A demonstration file, or all of a folder, as arrays for one behavior."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rollcast.demonstrations.collecting import Collector, Demonstration, row_bytes
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.framing import DemonstrationFile, Record
from rollcast.errors import BadSpec
from rollcast.limits import MIB
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.unity.forms import action_spec

SUFFIX: Final = ".demo"
MAX_LOADED_BYTES: Final = 2048 * MIB
"""Of all demonstrations of one behavior, unpacked: a small file may hold very large pictures."""
MAX_FILES: Final = 4096

_BLOCK_RECORDS: Final = 256
_BLOCK_BYTES: Final = 64 * MIB


def read_demonstrations(
    path: Path, spec: BehaviorSpec, *, max_bytes: int = MAX_LOADED_BYTES
) -> tuple[Demonstration, ...]:
    """Reads a file, or each ``*.demo`` file of a folder in the order of their names.

    Raises:
        BadDemonstration: there is none, one cannot be read, or it is another behavior's.
    """
    found = []
    for file in demonstration_files(path):
        found.append(read_demonstration(file, spec, max_bytes=max_bytes))
        max_bytes -= len(found[-1].observations[0]) * row_bytes(spec)
    if not any(len(one.rows) for one in found):
        raise BadDemonstration(path, "holds no step: a step is a decision and what came of it. Record more")
    return tuple(found)


def demonstration_files(path: Path) -> list[Path]:
    """Returns the file itself, or the ``*.demo`` files of a folder.

    Raises:
        BadDemonstration: there is nothing.
    """
    try:
        if not path.is_dir():
            return [path]
        files = sorted(file for file in path.iterdir() if file.suffix == SUFFIX)
    except OSError as error:
        raise BadDemonstration(path, f"cannot be opened: {error.strerror or error}") from None
    if not files:
        raise BadDemonstration(path, f"this folder has no {SUFFIX} files; name the file, or the folder that has them")
    if len(files) > MAX_FILES:
        raise BadDemonstration(path, f"this folder has {len(files)} {SUFFIX} files; {MAX_FILES} are read at most")
    return files


def read_demonstration(path: Path, spec: BehaviorSpec, *, max_bytes: int = MAX_LOADED_BYTES) -> Demonstration:
    """Reads one file; see `rollcast.demonstrations.collecting.Demonstration`.

    Args:
        path: the file.
        spec: of the run's behavior; its name may be another than the file's.
        max_bytes: what all records may take, unpacked.

    Raises:
        BadDemonstration: it cannot be read, or is another behavior's.
    """
    with DemonstrationFile(path) as file:
        _check_actions(file, spec.action)
        reader = Collector(path, spec, max_bytes)
        for block in _blocks(file.records(), spec):
            reader.read(block)
        return reader.demonstration(file.brain.brain_name)


def _check_actions(file: DemonstrationFile, ours: ActionSpec) -> None:
    try:
        theirs = action_spec(file.brain)
    except BadSpec as error:
        raise BadDemonstration(file.path, f"its behavior cannot be used: {error}", None) from None
    found = theirs.continuous_size, theirs.discrete_branches
    expected = ours.continuous_size, ours.discrete_branches
    if found != expected:
        raise BadDemonstration(
            file.path,
            f"its behavior has {found[0]} continuous actions and branches {list(found[1])[:16]}; the run's has "
            f"{expected[0]} and {list(expected[1])[:16]}. Record it with the same actions",
        )


def _blocks(records: Iterator[Record], spec: BehaviorSpec) -> Iterator[list[Record]]:
    """Yields records in lists that are small enough to be held beside the arrays, packed and unpacked."""
    most = max(1, min(_BLOCK_RECORDS, _BLOCK_BYTES // max(1, row_bytes(spec))))
    block: list[Record] = []
    held_bytes = 0
    for record in records:
        block.append(record)
        held_bytes += record.size_bytes
        if len(block) >= most or held_bytes >= _BLOCK_BYTES:
            yield block
            block, held_bytes = [], 0
    if block:
        yield block
