"""Reads a demonstration file, or all of a folder, as arrays for one behavior."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from rollcast.demonstrations import Pairing
from rollcast.demonstrations.collecting import Collector, Demonstration, row_bytes
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.framing import DemonstrationFile, Record
from rollcast.errors import BadSpec
from rollcast.limits import MIB
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.unity.forms import action_spec

SUFFIX: Final = ".demo"
MAX_LOADED_BYTES: Final = 2048 * MIB
"""Unpacked bytes of all demonstrations of one behavior: a small file may contain very large pictures."""
MAX_FILES: Final = 4096

_NO_STEP: Final = "the file has no complete step (a decision and its result); record more"
_BLOCK_RECORDS: Final = 256
_BLOCK_BYTES: Final = 64 * MIB


def read_demonstrations(
    path: Path,
    spec: BehaviorSpec,
    *,
    max_bytes: int = MAX_LOADED_BYTES,
    left_out: Collection[str] = (),
    pairing: Pairing = "auto",
) -> tuple[Demonstration, ...]:
    """Reads a file, or each ``*.demo`` file of a folder in the order of their names.

    Args:
        path: The file or folder.
        spec: Spec of the run's behavior; its name may differ from the files'.
        max_bytes: Most bytes of all records, unpacked.
        left_out: Names of observations that are not read; each file has all of them, or none.
        pairing: The record that has the action of a step; see `rollcast.demonstrations.pairing`.

    Raises:
        BadDemonstration: There is no file, or one cannot be read or belongs to another behavior.
    """
    found = []
    for file in demonstration_files(path):
        found.append(read_demonstration(file, spec, max_bytes=max_bytes, left_out=left_out, pairing=pairing))
        max_bytes -= len(found[-1].observations[0]) * row_bytes(_without(spec, left_out))
    if not any(len(one.rows) for one in found):
        raise BadDemonstration(path, _NO_STEP)
    return tuple(found)


def check_demonstrations(path: Path) -> None:
    """Checks a file, or each ``*.demo`` file of a folder, as far as possible without a run: heads, actions, lengths.

    Raises:
        BadDemonstration: There is no file, one cannot be read, or none has a record.
    """
    records = 0
    for file in demonstration_files(path):
        with DemonstrationFile(file) as opened:
            _actions_of(opened)
            records += opened.count_records()
    if not records:
        raise BadDemonstration(path, _NO_STEP)


def demonstration_files(path: Path) -> list[Path]:
    """Returns the file itself, or the ``*.demo`` files of a folder.

    Raises:
        BadDemonstration: There is no file.
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
        raise BadDemonstration(path, f"this folder has {len(files)} {SUFFIX} files; at most {MAX_FILES} are allowed")
    return files


def read_demonstration(
    path: Path,
    spec: BehaviorSpec,
    *,
    max_bytes: int = MAX_LOADED_BYTES,
    left_out: Collection[str] = (),
    pairing: Pairing = "auto",
) -> Demonstration:
    """Reads one file; see `rollcast.demonstrations.collecting.Demonstration`.

    Args:
        path: The file.
        spec: Spec of the run's behavior; its name may differ from the file's.
        max_bytes: Most bytes of all records, unpacked.
        left_out: Names of observations that are not read; the file has all of them, or none.
        pairing: The record that has the action of a step; see `rollcast.demonstrations.pairing`.

    Raises:
        BadDemonstration: The file cannot be read, or belongs to another behavior.
    """
    read = _without(spec, left_out)
    with DemonstrationFile(path) as file:
        _check_actions(file, spec.action)
        reader = Collector(path, read, max_bytes, [observation.name for observation in spec.observations], pairing)
        for block in _blocks(file.records(), read):
            reader.read(block)
        return reader.demonstration(file.brain.brain_name)


def _without(spec: BehaviorSpec, left_out: Collection[str]) -> BehaviorSpec:
    return replace(spec, observations=tuple(each for each in spec.observations if each.name not in left_out))


def _check_actions(file: DemonstrationFile, ours: ActionSpec) -> None:
    theirs = _actions_of(file)
    found = theirs.continuous_size, theirs.discrete_branches
    expected = ours.continuous_size, ours.discrete_branches
    if found != expected:
        raise BadDemonstration(
            file.path,
            f"its behavior has {found[0]} continuous actions and branches {list(found[1])[:16]}; the run's has "
            f"{expected[0]} and {list(expected[1])[:16]}. Record it with the same actions",
        )


def _actions_of(file: DemonstrationFile) -> ActionSpec:
    try:
        return action_spec(file.brain)
    except BadSpec as error:
        raise BadDemonstration(file.path, f"its behavior cannot be used: {error}", None) from None


def _blocks(records: Iterator[Record], spec: BehaviorSpec) -> Iterator[list[Record]]:
    """Yields lists of records, small enough to be held packed and unpacked in addition to the arrays."""
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
