"""Tests how plug-ins are found."""

from pathlib import Path

import pytest

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from tests.learner.installed import install

GROUP = "rollcast.test"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder with a distribution of one valid and three invalid entry points."""
    points = {
        "good": "plugin_of_a_test:make",
        "missing": "plugin_of_a_test:nothing",
        "broken": "no_such_module_here:make",
        "value": "plugin_of_a_test:NUMBER",
        "csv": "plugin_of_a_test:make",
    }
    folder = install(
        tmp_path / "site", "plugin_of_a_test", "NUMBER = 3\ndef make():\n    return 'made'\n", {GROUP: points}
    )
    monkeypatch.syspath_prepend(str(folder))
    return folder


def find(name: str) -> object:
    """Finds a name and calls its object."""
    return plugins.find("rollcast.test", name, GROUP, {"csv": lambda: "ours"})()


@pytest.mark.usefixtures("site")
def test_an_installed_entry_point_is_found() -> None:
    """An entry point is found by its name; built-in names cannot be replaced."""
    assert find("good") == "made"
    assert find("csv") == "ours"


def test_a_module_of_the_present_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`module:callable` finds a module in the working directory, also attributes of classes."""
    (tmp_path / "mine_of_a_test.py").write_text("class Mine:\n    make = staticmethod(lambda: 'mine')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert find("mine_of_a_test:Mine.make") == "mine"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("god", "known: broken, csv, good, missing, value"),
        ("missing", "AttributeError"),
        ("broken", "no_such_module_here"),
        ("value", "not a function or class"),
        ("plugin_of_a_test:", "cannot be imported"),
        (":", "cannot be imported"),
    ],
)
def test_what_cannot_be_found_is_one_line(name: str, said: str) -> None:
    """The error has the setting, the name, the cause and the known names in one line."""
    with pytest.raises(UserError, match=said) as caught:
        find(name)
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert "rollcast.test names" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_factory_that_raises_is_named() -> None:
    """An error of a factory is shown with its setting; a UserError is unchanged."""

    def raises(error: Exception) -> None:
        raise error

    with pytest.raises(UserError, match="names 'mine', which failed: ValueError: bad"):
        plugins.make("rollcast.test", "mine", lambda: raises(ValueError("bad")))
    own = UserError(ExitCode.MISSING_EXTRA, "install it")
    with pytest.raises(UserError, match="install it") as caught:
        plugins.make("rollcast.test", "mine", lambda: raises(own))
    assert caught.value is own


@pytest.mark.parametrize("leave", [SystemExit(0), KeyboardInterrupt()])
def test_what_leaves_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: BaseException) -> None:
    """A module or factory that calls sys.exit is an error of the run file."""
    module = f"leaves_of_a_test_{type(leave).__name__}"
    (tmp_path / f"{module}.py").write_text(f"raise {leave!r}")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="cannot be imported: ") as caught:
        find(f"{module}:make")
    assert caught.value.exit_code is ExitCode.RUN_FILE

    def make() -> None:
        raise leave

    with pytest.raises(UserError, match="which failed: ") as caught:
        plugins.make("rollcast.test", "mine", make)
    assert caught.value.exit_code is ExitCode.RUN_FILE
