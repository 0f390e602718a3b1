"""Tests side-channel plug-ins of users."""

import sys
from pathlib import Path

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.unity.channels.plugins import PAGE, ChannelPlugin, load_plugins

CHANNELS = """
import uuid

class Echo:
    channel_id = uuid.UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7")

    def on_player(self, worker, send):
        self.send = send

    def on_message(self, worker, data):
        self.send(data)

class Engine(Echo):
    channel_id = uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")

class Text(Echo):
    channel_id = "621f0a70-4f87-11ea-a6bf-784f4387d1f7"

class SideChannel:
    def on_message_received(self, msg): ...
    def queue_message_to_send(self, msg): ...

class Theirs(SideChannel):
    def __init__(self, channel_id): ...

def made():
    return Theirs(1)

def imports():
    from mlagents_envs.side_channel.side_channel import SideChannel

SideChannel.__module__ = "mlagents_envs.side_channel.side_channel"

def nothing():
    return None

def raises():
    raise RuntimeError("two\\nlines")

def leaves():
    raise SystemExit(3)
"""


@pytest.fixture
def channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Writes a module in the working directory and returns its name."""
    name = f"user_channels_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CHANNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    return name


def test_a_plugin_of_the_working_directory_is_made(channels: str) -> None:
    """`--side-channel module:callable` finds a module in the working directory."""
    (plugin,) = load_plugins([f"{channels}:Echo"])
    assert isinstance(plugin, ChannelPlugin)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module_here:Echo", "cannot be created: ModuleNotFoundError"),
        ("{}:Missing", "cannot be created: AttributeError"),
        ("{}:nothing", "returned NoneType, which has no channel_id, on_player, on_message"),
        ("{}:Text", "channel_id has the type str"),
        ("{}:Engine", "belongs to Rollcast itself"),
        ("{}:raises", "RuntimeError: two lines"),
        ("{}:leaves", "SystemExit: 3"),
    ],
)
def test_what_is_no_plugin_is_one_line(channels: str, name: str, said: str) -> None:
    """A faulty plug-in ends the actor with one line that names it, before any player starts."""
    with pytest.raises(ActorError, match=said) as caught:
        load_plugins([name.format(channels)])
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message


def test_two_plugins_cannot_have_one_channel(channels: str) -> None:
    """The second one is refused, and both are named."""
    with pytest.raises(ActorError, match="belongs to side channel"):
        load_plugins([f"{channels}:Echo", f"{channels}:Echo"])


def test_installed_packages_declare_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point of the group `rollcast.side_channels` needs no flag."""
    (tmp_path / "their_channels.py").write_text(CHANNELS)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rollcast.side_channels]\necho = their_channels:Echo\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [str(plugin.channel_id) for plugin in load_plugins()] == ["621f0a70-4f87-11ea-a6bf-784f4387d1f7"]


@pytest.mark.parametrize("name", ["Theirs", "made", "imports"])
def test_a_side_channel_of_mlagents_is_told_the_difference(channels: str, name: str) -> None:
    """ML-Agents' class, an object of it, or code that needs its package: one line has the difference and the page."""
    with pytest.raises(ActorError) as caught:
        load_plugins([f"{channels}:{name}"])
    assert caught.value.exit_code == ExitCode.USAGE
    assert "ML-Agents' SideChannel" in caught.value.message
    page, _, heading = PAGE.partition("#")
    text = (Path(__file__).parents[4] / page).read_text(encoding="utf-8")
    assert f"## {heading.replace('-', ' ').capitalize()}" in text
