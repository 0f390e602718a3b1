"""Reads a YAML file strictly: safe values only, bounded size, with the line of every value.

The values are those of PyYAML's safe loader (YAML 1.1), as in ML-Agents; dates stay text. Keys are read literally, so
that a behavior named ``on`` or ``1`` keeps its name. Of a key that is written twice, the last one counts.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath

import yaml
from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import Path, Tree, Value

MAX_FILE_BYTES = 1024 * 1024
MAX_VALUES = 50_000
MAX_DEPTH = 50

_MERGE_TAG = "tag:yaml.org,2002:merge"
_TEXT_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_MAP_TAG = "tag:yaml.org,2002:map"
Repeated = tuple[Path, int, str]
"""Place and line of a key that is written again, and what to tell of it."""
_LIST_TAG = "tag:yaml.org,2002:seq"


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content, with the first line of each value, counted from 1, and the keys that are written again."""

    tree: Tree = field(default_factory=dict)
    lines: Mapping[Path, int] = field(default_factory=dict)
    repeated: Sequence[Repeated] = ()


class _RefusedError(Exception):
    """Raised for a value that is not allowed; has its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Builder:
    """Converts nodes to values; expands and counts aliases."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.repeated: list[Repeated] = []
        self._scalars = yaml.constructor.SafeConstructor()
        self._count = 0

    def build(self, node: yaml.Node, path: Path) -> Value:
        """Returns the value of a node.

        Raises:
            _RefusedError: The node or one below it is not allowed.
        """
        line = node.start_mark.line + 1
        self.lines[path] = line
        self._count += 1
        if self._count > MAX_VALUES:
            raise _RefusedError(line, f"has more than {MAX_VALUES} values, including those of aliases")
        if len(path) > MAX_DEPTH:
            raise _RefusedError(line, f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP_TAG:
            return self._map(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _LIST_TAG:
            return [self.build(child, (*path, str(index))) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        raise _RefusedError(line, f"the tag {node.tag} is not allowed; only maps, lists, text and numbers are")

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Value:
        if node.tag in _TEXT_TAGS:
            return str(node.value)
        if node.tag not in _PLAIN_TAGS:
            raise _RefusedError(line, f"the tag {node.tag} is not allowed; only maps, lists, text and numbers are")
        try:
            value: Value = self._scalars.construct_object(node)
            if isinstance(value, int):
                float(value)  # each number is compared with floats
        except (ValueError, KeyError, IndexError, OverflowError):
            raise _RefusedError(line, f"{str(node.value)[:40]!r} is not a {node.tag.rpartition(':')[2]}") from None
        return value

    def _map(self, node: yaml.MappingNode, path: Path) -> Tree:
        tree: Tree = {}
        merged: list[Tree] = []
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE_TAG:
                merged.extend(self._merge_sources(value_node, path, line))
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _RefusedError(line, "a key must be plain text")
            key = str(key_node.value)
            here = (*path, key)
            if key in first_lines:
                text = f"is written twice, first on line {first_lines[key]}: this one counts"
                self.repeated.append((here, line, text))
            else:
                first_lines[key] = line
            tree[key] = self.build(value_node, here)
            self.lines[here] = line
        for source in merged:
            tree = {**source, **tree}
        return tree

    def _merge_sources(self, node: yaml.Node, path: Path, line: int) -> list[Tree]:
        """Returns the maps that ``<<`` merges; an earlier one wins over a later one, as YAML requires."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        sources: list[Tree] = []
        for source_node in nodes:
            source = self.build(source_node, (*path, "<<"))
            if not isinstance(source, dict):
                raise _RefusedError(line, "<< can only merge maps")
            sources.append(source)
        return sources


def parse_value(text: str) -> Value:
    """Parses one value in YAML notation, such as ``{}`` or ``[1, 2]``.

    Raises:
        ValueError: The text is not YAML, or contains something that is not allowed.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        builder = _Builder()
        value = None if node is None else builder.build(node, ())
        if builder.repeated:
            raise ValueError(f"{'.'.join(builder.repeated[0][0])} is written twice")
        return value
    except (yaml.YAMLError, _RefusedError, RecursionError) as error:
        raise ValueError(str(error).partition("\n")[0]) from None


def read_document(path: FilePath, *, is_given: bool = False) -> Document:
    """Reads a run file.

    Args:
        path: The file.
        is_given: Whether the user has named it, so that it may be a pipe, as in ``serve <(make-settings)``; in a run folder nobody may
            ever write to one.

    Raises:
        UserError: The file is missing, unreadable, not YAML, not a map, or contains something that is not allowed.
    """
    text = _read_text(path, is_given=is_given)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise _refusal(path, None, "is empty; a run file needs at least behaviors or default_settings")
        if not isinstance(node, yaml.MappingNode):
            raise _refusal(path, None, "is not a map of settings; its top level must have keys such as behaviors:")
        builder = _Builder()
        tree = builder.build(node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else None
        found = str(error.problem or error.context)
        hint = "; indent with spaces" if r"'\t'" in found else ""
        raise _refusal(path, line, f"is not YAML: {found}{hint}") from None
    except yaml.YAMLError as error:
        raise _refusal(path, None, f"is not YAML: {str(error).partition(chr(10))[0]}") from None
    except RecursionError:
        raise _refusal(path, None, f"is nested more than {MAX_DEPTH} levels deep") from None
    except _RefusedError as error:
        raise _refusal(path, error.line, str(error)) from None
    return Document(tree if isinstance(tree, dict) else {}, builder.lines, builder.repeated)


def _read_text(path: FilePath, *, is_given: bool) -> str:
    try:
        if is_given and not path.is_file():
            with path.open("rb") as pipe:
                content = pipe.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise OSError(errno.EFBIG, "")
        else:
            content = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise _refusal(path, None, "does not exist; give the path of a run file") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _refusal(path, None, f"is larger than {MAX_FILE_BYTES} bytes; this is not a run file") from None
        raise _refusal(path, None, f"cannot be read: {error.strerror or error}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal(path, line, "is not UTF-8 text; save it as UTF-8") from None


def _refusal(path: FilePath, line: int | None, message: str) -> UserError:
    place = str(path) if line is None else f"{path}:{line}"
    return UserError(ExitCode.RUN_FILE, f"{place}: {message}")
