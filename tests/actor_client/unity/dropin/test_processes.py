"""Tests the two child processes with small programs and real signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actor_client.unity.dropin.exits import STOPPED_EARLY, ExitCode

ROOT = Path(__file__).resolve().parents[4]
SECONDS = 60.0
PARENT = """
import sys
from actor_client.unity.dropin.exits import DropInError
from actor_client.unity.dropin.processes import Hooks, RunProcesses, StopSignals
signals = StopSignals()
hooks = Hooks(
    is_serving=lambda: len(sys.argv) > 5,
    say_serving=lambda: print("serving", flush=True),
    say_stopping=lambda: print("stopping", flush=True),
    gateway_error=lambda: sys.argv[4],
)
commands = [[sys.executable, "-c", text] for text in sys.argv[2:4]]
try:
    with signals.counted():
        code = RunProcesses(*commands, int(sys.argv[1]), signals, hooks).run()
except DropInError as error:
    print(error.message, flush=True)
    code = error.exit_code
sys.exit(code)
"""
CHILD = """
import os, signal, socket, sys, time
NAME = {name!r}
def say(text):
    with open({log!r}, "a") as file: file.write(NAME + " " + text + "\\n")
def finish(code):
    say("ended")
    os._exit(code)
asked = [0]
def on_signal(number, frame):
    asked[0] += 1
    say("asked")
signal.signal(signal.SIGTERM, on_signal)
say("started " + str(os.getpid()))
"""
LISTEN = """
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", {port})); listener.listen()
"""
UNTIL_ASKED = "\nwhile asked[0] < {times}: time.sleep(0.01)\nfinish({code})\n"
FOR_EVER = "\nwhile True: time.sleep(0.01)\n"


class Family:
    """A parent with two child processes.

    Args:
        folder: For what they say.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "said"
        self._log.touch()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self, gateway: str, learner: str, error: str = "", *, serves: bool = False) -> subprocess.Popen[str]:
        """Starts the parent with two programs, which continue after what all children begin with.

        Args:
            gateway: The program.
            learner: The program.
            error: What the gateway leaves as the reason of its end.
            serves: The learner serves once it runs.
        """
        programs = [
            CHILD.format(name=name, log=str(self._log)) + rest
            for name, rest in (("gateway", gateway), ("learner", learner))
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(self.port), *programs, error, *(["serves"] if serves else [])],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self.process

    @property
    def listen(self) -> str:
        """Runs the part of the gateway that opens its port."""
        return LISTEN.format(port=self.port)

    def said(self) -> list[str]:
        """Returns what the children said, in order; without the numbers of processes."""
        return [" ".join(line.split()[:2]) for line in self._log.read_text().splitlines()]

    def pids(self) -> list[int]:
        """Returns the process ids in the order of their starts."""
        return [int(line.split()[2]) for line in self._log.read_text().splitlines() if " started " in line]

    def wait_for(self, line: str, number: int = 1) -> None:
        """Waits until a child has said something so many times."""
        wait_until(lambda: self.said().count(line) >= number)

    def ends(self) -> tuple[int, str]:
        """Waits for the end, and returns exit code and last words."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=SECONDS)
        assert not any(map(_runs, self.pids()))
        return self.process.returncode, out.strip()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    """Starts a parent and kills what is left of it."""
    found = Family(tmp_path)
    yield found
    for pid in found.pids():
        if _runs(pid):
            os.kill(pid, signal.SIGKILL)
    if found.process is not None:
        found.process.kill()
        found.process.communicate()


def test_ports_first_then_the_learner(family: Family) -> None:
    """The learner starts once the gateway listens, and success of both is success."""
    process = family.start(
        "time.sleep(0.5)\n" + family.listen + "say('open')" + UNTIL_ASKED.format(times=1, code=0), "finish(0)\n"
    )
    family.wait_for("learner ended")
    process.send_signal(signal.SIGTERM)
    assert family.ends()[0] == ExitCode.OK
    assert family.said()[:4] == ["gateway started", "gateway open", "learner started", "learner ended"]


def test_the_first_signal_stops_players_then_the_learner(family: Family) -> None:
    """The first signal ends the gateway and then the learner, whose exit code is returned."""
    process = family.start(family.listen + UNTIL_ASKED.format(times=1, code=0), UNTIL_ASKED.format(times=1, code=0))
    family.wait_for("learner started")
    process.send_signal(signal.SIGINT)
    assert family.ends() == (ExitCode.OK, "stopping")
    assert family.said()[2:] == ["gateway asked", "gateway ended", "learner asked", "learner ended"]


def test_a_signal_to_the_whole_terminal_reaches_no_child(family: Family) -> None:
    """Ctrl-C in the terminal reaches no child directly, because each has its own session."""
    family.start(family.listen + UNTIL_ASKED.format(times=1, code=0), UNTIL_ASKED.format(times=1, code=0))
    family.wait_for("learner started")
    own = os.getsid(0)
    assert [os.getsid(pid) == own for pid in family.pids()] == [False, False]
    assert family.process is not None
    family.process.send_signal(signal.SIGINT)
    family.ends()
    assert family.said().count("learner asked") == 1


def test_a_second_signal_cuts_short(family: Family) -> None:
    """A second signal kills the gateway and makes the learner end immediately."""
    process = family.start(family.listen + UNTIL_ASKED.format(times=2, code=0), UNTIL_ASKED.format(times=2, code=0))
    family.wait_for("learner started")
    process.send_signal(signal.SIGINT)
    family.wait_for("gateway asked")
    process.send_signal(signal.SIGINT)
    assert family.ends() == (ExitCode.OK, "stopping")
    assert family.said().count("learner asked") == 2


def test_a_first_signal_during_the_end_is_the_first(family: Family) -> None:
    """If a child already failed, the user's first signal does not hurry the other."""
    process = family.start(family.listen + "time.sleep(0.3)\nfinish(3)\n", UNTIL_ASKED.format(times=2, code=0))
    family.wait_for("learner asked")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert family.said().count("learner asked") == 1
    process.send_signal(signal.SIGINT)
    family.wait_for("learner asked", 2)
    family.ends()
    assert family.said()[-1] == "learner ended"


def test_a_third_signal_ends_everything(family: Family) -> None:
    """A third signal kills both children."""
    process = family.start(family.listen + FOR_EVER, FOR_EVER)
    family.wait_for("learner started")
    process.send_signal(signal.SIGINT)
    family.wait_for("gateway asked")
    process.send_signal(signal.SIGINT)
    family.wait_for("learner asked")
    process.send_signal(signal.SIGINT)
    assert family.ends()[0] == ExitCode.INTERRUPTED


def test_a_learner_that_fails_takes_the_players_with_it(family: Family) -> None:
    """If the learner fails, players are ended and its exit code is returned."""
    family.start(family.listen + UNTIL_ASKED.format(times=1, code=0), "finish(15)\n")
    assert family.ends() == (15, "")
    assert family.said()[-1] == "gateway ended"


def test_a_learner_that_is_killed(family: Family) -> None:
    """If the learner is killed, one line has the signal and the command to resume."""
    family.start(family.listen + UNTIL_ASKED.format(times=1, code=0), "os.kill(os.getpid(), signal.SIGKILL)\n")
    code, words = family.ends()
    assert code == ExitCode.LEARNER_KILLED
    assert "SIGKILL" in words
    assert "--resume=auto" in words


@pytest.mark.parametrize(
    ("gateway", "code"),
    [(40, ExitCode.ENVIRONMENT_FAILED), (11, ExitCode.UNKNOWN_ENVIRONMENT), (77, ExitCode.GATEWAY_FAILED)],
)
def test_players_that_fail_stop_the_learner_in_good_order(family: Family, gateway: int, code: ExitCode) -> None:
    """If the players fail, the learner saves, and the exit code is that of the players."""
    family.start(family.listen + f"\ntime.sleep(1)\nfinish({gateway})\n", UNTIL_ASKED.format(times=1, code=0))
    assert family.ends()[0] == code
    assert family.said()[-2:] == ["learner asked", "learner ended"]


@pytest.mark.parametrize(("error", "words"), [("player 0 failed", "player 0 failed"), ("", "ended with exit code 40")])
def test_the_players_failure_is_the_last_word(family: Family, error: str, words: str) -> None:
    """The gateway's error is repeated after the learner's last lines."""
    learner = UNTIL_ASKED.format(times=1, code=0).replace("finish", "print('run ended', flush=True); finish")
    family.start(family.listen + "\ntime.sleep(1)\nfinish(40)\n", learner, error)
    code, said = family.ends()
    assert code == ExitCode.ENVIRONMENT_FAILED
    assert said.splitlines()[0] == "run ended"
    assert words in said.splitlines()[-1]


def test_where_the_learner_is_is_said_once_it_serves(family: Family) -> None:
    """The learner's address is printed once it serves."""
    process = family.start(
        family.listen + UNTIL_ASKED.format(times=1, code=0), UNTIL_ASKED.format(times=1, code=0), serves=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    family.wait_for("learner started")
    process.send_signal(signal.SIGINT)
    assert family.ends() == (ExitCode.OK, "stopping")


def test_a_signal_before_the_learner_is_there(family: Family) -> None:
    """A signal before the learner starts ends the command with one line."""
    process = family.start(UNTIL_ASKED.format(times=1, code=0), FOR_EVER)
    family.wait_for("gateway started")
    process.send_signal(signal.SIGINT)
    code, words = family.ends()
    assert (code, words) == (ExitCode.INTERRUPTED, STOPPED_EARLY)
    assert family.said() == ["gateway started", "gateway asked", "gateway ended"]


def test_a_signal_while_the_learner_still_starts(family: Family) -> None:
    """A signal while the learner starts ends it immediately, with one line."""
    process = family.start(
        family.listen + UNTIL_ASKED.format(times=1, code=0),
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\nsay('imports')\n" + FOR_EVER,
    )
    family.wait_for("learner imports")
    process.send_signal(signal.SIGINT)
    assert family.ends() == (ExitCode.INTERRUPTED, f"stopping\n{STOPPED_EARLY}")


def test_a_run_that_is_over_waits_for_its_players(family: Family) -> None:
    """After a finished run, the learner waits until the gateway has ended."""
    family.start(family.listen + "\ntime.sleep(1.5)\nfinish(0)\n", "time.sleep(0.5)\nfinish(0)\n")
    assert family.ends() == (ExitCode.OK, "")
    assert "gateway asked" not in family.said()


def test_a_port_in_use_starts_no_learner(family: Family) -> None:
    """If the gateway's port is taken, the learner is not started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", family.port))
        listener.listen()
        family.start("time.sleep(0.3)\nfinish(23)\n", FOR_EVER)
        assert family.ends()[0] == ExitCode.PORT_IN_USE
    assert family.said() == ["gateway started", "gateway ended"]


def test_children_end_with_a_parent_that_is_killed(family: Family) -> None:
    """If the parent is killed, both children are asked to end."""
    process = family.start(family.listen + UNTIL_ASKED.format(times=1, code=0), UNTIL_ASKED.format(times=1, code=0))
    family.wait_for("learner started")
    process.kill()
    family.wait_for("gateway ended")
    family.wait_for("learner ended")
