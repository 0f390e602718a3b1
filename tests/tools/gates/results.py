"""Keeps the results of gates: one JSON file each, a compact one, and the table of the page that is made from it."""

import json
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from os import cpu_count
from pathlib import Path
from statistics import mean, median
from typing import Any

from learner.shared.observe.versions import versions
from tests.tools.gates.gate import Gate, Results, Trained, Verdict
from tests.tools.gates.training import commands

MEASURED = Path(__file__).with_name("measured.json")
"""Results that were kept, in short."""
PAGE = Path(__file__).with_name("README.md")
"""Shows them."""
BEGIN, END = "<!-- gates -->", "<!-- /gates -->"
"""Mark the table in the page."""


def document(gate: Gate, results: Results, verdict: Verdict) -> dict[str, Any]:
    """Returns the content of a gate's JSON file."""
    return {
        "gate": gate.name,
        "title": gate.title,
        "asks": gate.asks,
        "passed": verdict.passed,
        "verdict": verdict.text,
        "seeds": list(gate.seeds),
        "seconds": sum(run.seconds for runs in results.values() for run in runs),
        "commands": commands(gate, gate.seeds[0]),
        "arms": {arm: [run.as_dict() for run in runs] for arm, runs in results.items()},
        "machine": {"cores": cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
    }


def write(folder: Path, content: Mapping[str, Any]) -> Path:
    """Writes a gate's file and returns its path."""
    path = folder / f"{content['gate']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def keep_run(file: Path, command: Sequence[str], run: Trained) -> None:
    """Writes the result of one training, so that an interrupted gate continues with the next one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"commit": _commit(), "command": list(command), "trained": run.as_dict()}), "utf-8")


def kept_run(file: Path, command: Sequence[str]) -> Trained | None:
    """Returns the result of an earlier training by the same command at this commit; None if there is none.

    A checkout with changed files has no earlier results.
    """
    if not file.exists() or (commit := _commit()).endswith("+"):
        return None
    content = json.loads(file.read_text("utf-8"))
    same = content["commit"] == commit and content["command"] == list(command)
    return Trained.from_dict(content["trained"]) if same else None


def keep(folder: Path, gates: Iterable[Gate], measured: Path = MEASURED) -> list[str]:
    """Takes the results of a folder over into the compact file, where they replace older ones of the same gates.

    Returns:
        The names of the gates that had results.
    """
    rows: dict[str, Any] = {row["gate"]: row for row in read(measured)}
    kept = []
    for gate in gates:
        path = folder / f"{gate.name}.json"
        if path.exists():
            rows[gate.name] = compact(json.loads(path.read_text(encoding="utf-8")))
            kept.append(gate.name)
    ordered = [rows[gate.name] for gate in gates if gate.name in rows]
    lines = ",\n".join("  " + json.dumps(row) for row in ordered)
    measured.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return kept


def compact(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the table needs of a gate's file."""
    names = ("steps", "seconds", "steps_to_target", "train", "best", "greedy_mean", "against")
    arms = {
        arm: [{name: _short(run[name]) for name in names if run.get(name) not in (None, [])} for run in runs]
        for arm, runs in content["arms"].items()
    }
    keys = ("gate", "title", "asks", "passed", "seeds", "date", "commit", "commands")
    return {**{key: content.get(key) for key in keys}, "arms": arms}


def read(measured: Path = MEASURED) -> list[dict[str, Any]]:
    """Returns the rows of the compact file; none if there is none yet."""
    rows: list[dict[str, Any]] = json.loads(measured.read_text(encoding="utf-8")) if measured.exists() else []
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Renders the page's table: a row per arm, returns of all seeds, time and steps of the median seed."""
    lines = ["| gate | asks for | seeds | reached | steps | seconds | commit |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        for number, (arm, runs) in enumerate(row["arms"].items()):
            title = row["title"] if number == 0 else ""
            asks = row["asks"] if number == 0 else ""
            seeds = ", ".join(map(str, row["seeds"][: len(runs)])) if number == 0 else ""
            commit = (row.get("commit") or "") if number == 0 else ""
            mark = ("" if row["passed"] else " **(failed)**") if number == 0 else ""
            reached = f"{arm}: {' / '.join(_figure(run) for run in runs)}"
            steps = f"{median(_steps(run) for run in runs):,.0f}"
            seconds = f"{median(run['seconds'] for run in runs):,.0f}"
            lines.append(f"| {title}{mark} | {asks} | {seeds} | {reached} | {steps} | {seconds} | {commit} |")
    return "\n".join(lines)


def put_between_marks(document: Path, text: str) -> None:
    """Replaces the table between the marks of a document."""
    content = document.read_text(encoding="utf-8")
    before, _, rest = content.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{document} has no {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def shown(name: str, gate: Gate, results: Results, verdict: Verdict) -> str:
    """Returns what is printed when a gate is over: each run, and the verdict."""
    lines = [f"{name}: {gate.title}: {gate.asks}"]
    for arm, runs in results.items():
        lines += [f"  {arm} {_line(run)}" for run in runs]
    return "\n".join([*lines, f"  {'passed' if verdict.passed else 'FAILED'}: {verdict.text}"])


def _commit() -> str:
    """Returns the commit of this checkout in short, with a + if files differ from it."""
    revision = versions()["git"]["rollcast"]
    return "" if revision is None else revision["revision"][:8] + ("+" if revision["is_changed"] else "")


def _line(run: Trained) -> str:
    parts = [f"seed {run.seed}: {run.stop_reason} after {run.steps:,} steps, {run.seconds:.0f} s"]
    for what, value in (("train", run.train), ("best", run.best), ("greedy", run.greedy_mean)):
        if value is not None:
            parts.append(f"{what} {value:.4g}")
    return ", ".join(parts)


def _steps(run: Mapping[str, Any]) -> float:
    return float(run.get("steps_to_target") or run["steps"])


def _figure(run: Mapping[str, Any]) -> str:
    if "greedy_mean" in run:
        acted = f" ({run['train']:.4g})" if "train" in run else ""
        return f"{run['greedy_mean']:.4g} greedy{acted}"
    if "against" in run:
        return f"{mean(run['against']):.1%} of games"
    values = [run[name] for name in ("best", "train") if name in run]
    return f"{max(values):.4g}" if values else "nothing"


def _short(value: float | list[float]) -> float | list[float]:
    if isinstance(value, list):
        return value
    return value if isinstance(value, int) else float(f"{value:.5g}")
