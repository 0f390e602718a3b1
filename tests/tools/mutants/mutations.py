"""Makes the mutants of one module: mutmut's mutations of expressions, and four of statements.

A mutant differs from the module in one place inside a function. Left alone are annotations, docstrings, decorators, defaults of
parameters, calls of a log, assertions, and the messages of errors.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

LOG_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_COMPOUND: Final = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match)


@dataclass(frozen=True)
class Mutant:
    """A module that differs from the product's in one place.

    Attributes:
        line: Where it differs, counted from 1.
        code: The source.
        lines: The lines of the statement that differs, without its block; a test that executes none of them cannot notice.
        diff: The difference, as a unified diff.
    """

    line: int
    code: str = field(repr=False)
    lines: frozenset[int]
    diff: str = field(repr=False)


def mutants(source: str) -> list[Callable[[], Mutant | None]]:
    """Returns what makes each mutant of a source, or None if it would not differ; to make them all takes minutes."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    places = wrapper.resolve(PositionProvider)
    tree = ast.parse(source)
    known = {ast.dump(tree)}

    def make(node: Any, changed: Any) -> Mutant | None:
        code = wrapper.module.deep_replace(node, changed).code
        try:
            different = ast.dump(ast.parse(code))
        except SyntaxError:
            return None
        if different in known:
            return None
        known.add(different)
        line = places[next(each for each in _walk(node) if each in places)].start.line  # operators have no place
        return Mutant(line, code, _statement(tree, line), difference(source, code))

    return [partial(make, node, changed) for node, changed in _changes(wrapper.module, inside=False)]


def difference(source: str, code: str) -> str:
    """Returns the lines that differ, with one line around them."""
    lines = difflib.unified_diff(source.splitlines(), code.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _changes(node: Any, *, inside: bool) -> Iterator[tuple[Any, Any]]:
    """Yields nodes inside functions, each with what replaces it."""
    if _left_alone(node):
        return
    if inside:
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                few = 1 if isinstance(node, cst.BaseString) else None  # not its lower and upper case too
                yield from ((node, changed) for changed in list(operator(node))[:few])
        yield from ((node, changed) for changed in _statement_changes(node))
    if isinstance(node, cst.FunctionDef):
        yield from _changes(node.body, inside=True)
        return
    if isinstance(node, cst.Raise):
        return
    for child in node.children:
        yield from _changes(child, inside=inside)


def _statement_changes(node: Any) -> Iterator[Any]:
    """Yields what replaces a statement: a condition its opposite, a call or an error nothing, a result None."""
    if isinstance(node, cst.If | cst.While):
        opposite = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), opposite))
    elif isinstance(node, cst.Raise) or (isinstance(node, cst.Expr) and isinstance(node.value, cst.Call)):
        yield cst.Pass()
    elif isinstance(node, cst.Return) and node.value is not None:
        yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))


def _left_alone(node: Any) -> bool:
    if isinstance(node, cst.Annotation | cst.Decorator | cst.Assert | cst.Parameters):
        return True
    if isinstance(node, cst.Expr):
        return isinstance(node.value, cst.BaseString) or _logs(node.value)
    return False


def _logs(call: Any) -> bool:
    """Returns whether an expression is a call of a log, such as `self._log.info("saved")`."""
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return False
    of = call.func.value
    name = of.attr.value if isinstance(of, cst.Attribute) else of.value if isinstance(of, cst.Name) else ""
    return call.func.attr.value in LOG_LEVELS and str(name).lstrip("_") in {"log", "logger"}


def _statement(tree: ast.Module, line: int) -> frozenset[int]:
    """Returns the lines of the innermost statement at a line, without its block."""
    found = frozenset({line})
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            last = node.body[0].lineno - 1 if isinstance(node, _COMPOUND) and hasattr(node, "body") else node.end_lineno
            if line <= max(last or 0, node.lineno):
                found = frozenset(range(node.lineno, max(last or 0, node.lineno) + 1))
    return found
