"""Tests which test files are shaken."""

from __future__ import annotations

from pathlib import Path

from tests.tools.suite.shake import affected


def test_what_imports_a_changed_module_is_shaken_too(tmp_path: Path) -> None:
    """Changed test files and those that import a changed module are run, also through another module; others are not."""
    texts = {
        "tests/helper.py": "",
        "tests/e2e/through.py": "from tests import helper\n",
        "tests/e2e/test_one.py": "from tests.e2e.through import start\n",
        "tests/learner/test_two.py": "def test_it():\n    import tests.helper\n",
        "tests/learner/test_three.py": "import os\n",
        "tests/learner/test_four.py": "import os\n",
        "tests/nightly/chaos/test_five.py": "import tests.helper\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = affected(["tests/helper.py", "tests/learner/test_four.py"], tmp_path)
    assert found == ["tests/e2e/test_one.py", "tests/learner/test_four.py", "tests/learner/test_two.py"]
