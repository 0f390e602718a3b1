"""Tests real processes: their ends, their last output, and their cleanup."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from actor_client.builds.process import PlayerProcess, end_all
from actor_client.exits import ActorError, ExitCode
from actor_client.unity.players.launch import Launch
from tests.actor_client.unity.players.programs import eventually, is_running, script

pytestmark = pytest.mark.slow


def player(executable: Path, log_dir: Path | None = None) -> PlayerProcess:
    """Returns a player of a build."""
    return PlayerProcess(0, 5005, Launch(executable, log_dir=log_dir))


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("exit 0", "ended with exit code 0"),
        ("exit 139", "ended with exit code 139"),
        ("kill -SEGV $$", "was ended by SIGSEGV (segmentation fault)"),
        ("kill -KILL $$", "was ended by SIGKILL (killed)"),
    ],
)
def test_the_end_is_named(tmp_path: Path, body: str, how: str) -> None:
    """An exit is described by its code or the name of its signal."""
    process = player(script(tmp_path, body))
    assert process.how_it_ended() is None
    process.start()
    eventually(lambda: process.how_it_ended() is not None, "an end")
    assert process.how_it_ended() == how


def test_last_words_are_kept_however_much_it_writes(tmp_path: Path) -> None:
    """The last output is kept, however much a player prints; control characters are removed."""
    process = player(
        script(tmp_path, "yes noise | head -c 3000000\nprintf 'lib\\033[31mfoo.so: missing\\n\\n' >&2; exit 127")
    )
    process.start()
    eventually(lambda: process.how_it_ended() is not None, "an end")
    assert process.last_words() == "lib\\x1b[31mfoo.so: missing"


def test_all_that_it_started_goes_with_it(tmp_path: Path) -> None:
    """A grandchild that ignores signals is killed, even if the player has already ended."""
    pids = tmp_path / "pids"
    process = player(
        script(tmp_path, f"trap '' TERM\nsleep 600 &\necho $! $$ > {pids}.new && mv {pids}.new {pids}\nwait")
    )
    process.start()
    eventually(pids.exists, "the grandchild")
    grandchild, child = map(int, pids.read_text().split())
    assert child == process.pid
    assert os.getpgid(grandchild) == child
    os.kill(child, signal.SIGKILL)
    eventually(lambda: process.how_it_ended() is not None, "the end of the player")
    assert is_running(grandchild)
    end_all([process], 0.0, 0.0)
    eventually(lambda: not is_running(grandchild), "the end of the grandchild")


def test_players_may_leave_by_themselves_are_asked_and_at_last_ended(tmp_path: Path) -> None:
    """A player that ends by itself keeps its exit code; one that does not is asked and then killed."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    leaves = player(script(tmp_path / "a", "sleep 0.2; exit 7"))
    obeys = player(script(tmp_path / "b", "trap 'exit 8' TERM; while :; do sleep 0.05; done"))
    stays = player(script(tmp_path, "trap '' TERM; while :; do sleep 0.05; done"))
    never_started = player(script(tmp_path, "exit 0", "other"))
    for process in (leaves, obeys, stays):
        process.start()
    end_all([leaves, obeys, stays, never_started], 2.0, 2.0)
    ends = [process.how_it_ended() for process in (leaves, obeys, stays)]
    assert ends == ["ended with exit code 7", "ended with exit code 8", "was ended by SIGKILL (killed)"]


def test_the_log_of_the_process_before_is_kept(tmp_path: Path) -> None:
    """The log of the previous process is kept."""
    build = script(tmp_path, 'while [ "$1" != -logFile ]; do shift; done; echo run $$ > "$2"')
    process = player(build, log_dir=tmp_path)
    for _ in range(2):
        process.start()
        eventually(lambda: process.how_it_ended() is not None, "an end")
    assert (tmp_path / "Player-0.log").read_text() == f"run {process.pid}\n"
    assert (tmp_path / "Player-0-prev.log").read_text() != f"run {process.pid}\n"


def test_what_is_no_program_is_one_line(tmp_path: Path) -> None:
    """A program for another processor, or a script without its interpreter, is an error of one line."""
    build = tmp_path / "Build.x86_64"
    build.write_bytes(b"\x7fELF nonsense")
    build.chmod(0o755)
    with pytest.raises(ActorError, match=r"player 0 cannot be started: .*Build.x86_64: exec format error") as failure:
        player(build).start()
    assert failure.value.exit_code is ExitCode.UNKNOWN_ENVIRONMENT
