"""Run files of every shape resolve to the trees that ML-Agents 1.1.0 makes of them.

Beside each run file in ``golden`` lies what that program resolved it to, key for key; Rollcast's own keys come on top.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.settings.load import load_run_options

FOLDER = Path(__file__).parent / "golden"
OWN_KEYS = {
    "rollcast",
    "activation",
    "initialization",
    "max_grad_norm",
    "ratio",
    "adam_epsilon",
    "gradient_accumulation",
    "max_update_debt",
    "tower",
}


def without_own_keys(value: Any) -> Any:
    """Returns a resolved tree without what Rollcast adds to ML-Agents' blocks."""
    if isinstance(value, dict):
        return {key: without_own_keys(item) for key, item in value.items() if key not in OWN_KEYS}
    return [without_own_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_run_file_resolves_to_the_same_tree(path: Path) -> None:
    """Same keys, same nesting, same values, and nothing to warn of but that so few steps train nothing."""
    loaded = load_run_options(path)
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert without_own_keys(loaded.options.model_dump(mode="json")) == expected
    assert [line for line in loaded.warnings if "nothing would be trained" not in line] == []


def test_the_command_prints_it() -> None:
    """`check-config --json` of a run that no trainer can do yet: the tree, exit code 0, and what serve would refuse."""
    path = FOLDER / "selfplay.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "learner", "check-config", str(path), "--json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert without_own_keys(json.loads(done.stdout)) == json.loads(path.with_suffix(".json").read_text())
    assert [
        line.partition(" is not built yet")[0].partition(": not built")[0] for line in done.stderr.splitlines()
    ] == [
        "serve would refuse: behaviors.Keeper.trainer_type: poca",
        "serve would refuse: behaviors.Keeper.self_play",
        "serve would refuse: behaviors.Attacker.trainer_type: poca",
        "serve would refuse: behaviors.Attacker.self_play",
    ]
