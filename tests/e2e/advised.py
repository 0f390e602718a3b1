"""What users do wrong, by command, with what the message advises and how to carry that out."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.e2e.processes import ROOT, SECONDS, command_environment

OWN_FRAME: Final = re.compile(rf'File "{re.escape(str(ROOT))}/(?:learner|actor_client|protos)/')
"""A line of a traceback through Rollcast; that of a user's environment has only the user's."""
RUN: Final = """\
behaviors:
  B:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 1024}
"""
UNITY_RUN: Final = f"{RUN}env_settings: {{env_path: Nope}}\n"
WALK: Final = """\
import gymnasium, numpy
class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 10, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.x = 0
        return numpy.array([0], numpy.float32), {}
    def step(self, action):
        self.x += int(action)
        reward, end = -0.1, self.x >= 5
        return numpy.array([self.x], numpy.float32), reward, end, False, {}
def right(observation):
    return 1
"""
PLAYS: Final = "--policy walk:right --record it.demo --record-episodes 1"
"""Plays an environment to its end without a learner."""
ALONE: Final = "--learner 127.0.0.1:1 --connect-timeout 1"
"""Where no learner is: what is right up to there ends with 20."""
CAN_START: Final = "rollcast check-config run.yaml --can-start --json"


class Desk:
    """A user's folder with a run file, an environment and the folder of a run.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.write("run.yaml", RUN)
        self.write("walk.py", WALK)
        self.write("other/old/configuration.yaml", RUN)
        self.write("other/old/generation", "1")

    def write(self, name: str, text: str) -> Path:
        """Writes a file and returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> Path:
        """Replaces what a file has exactly once, and returns its path."""
        text = (self.folder / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, (old, text)
        return self.write(name, text.replace(old, new))

    def run(self, line: str, stdin: str = "") -> tuple[int, str, str]:
        """Runs a command line; returns its exit code, its output and its errors."""
        program, *words = shlex.split(line)
        assert program == "rollcast", line
        environment: Mapping[str, str] = {**command_environment(), **self.environment}
        done = subprocess.run(
            [sys.executable, "-m", program, *words],
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert not OWN_FRAME.search(done.stderr), done.stderr
        return done.returncode, done.stdout, done.stderr

    def succeeds(self, line: str, stdin: str = "") -> str:
        """Runs a command that a message printed; returns its output."""
        code, out, err = self.run(line, stdin)
        assert code == 0, f"{line}: {out}{err}"
        return out


Mend = Callable[[Desk, "re.Match[str]", str], str]
"""Carries out the advice, found in the last line of the errors; returns the command line to try next."""


@dataclass(frozen=True)
class Cause:
    """One thing that users do wrong.

    Attributes:
        name: What it is.
        line: The command line.
        code: Its exit code.
        advice: What its last line must say; a regular expression.
        mend: Carries that out.
        then: The exit code afterwards.
        files: Files of the user, by name.
        variables: Variables of the user.
    """

    name: str
    line: str
    code: int
    advice: str
    mend: Mend
    then: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def instead(wrong: str) -> Mend:
    """Writes what the message names, its first group, in place of a wrong word of the command line."""
    return lambda _desk, match, line: line.replace(wrong, match[1])


def replaced(wrong: str, right: str) -> Mend:
    """Writes another word in place of a wrong one, in the form that the message asks for."""
    return lambda _desk, _match, line: line.replace(wrong, right)


def added(words: str = "") -> Mend:
    """Appends what the message names, its first group, or words that follow it."""
    return lambda _desk, match, line: f"{line} {match[1]} {words}"


def edited(file: str, wrong: str) -> Mend:
    """Writes what the message names in place of a word of a file."""

    def mend(desk: Desk, match: re.Match[str], line: str) -> str:
        desk.edit(file, wrong, match[1])
        return line

    return mend


def rewritten(file: str, wrong: str, right: str) -> Mend:
    """Changes a file as the message asks."""

    def mend(desk: Desk, _match: re.Match[str], line: str) -> str:
        desk.edit(file, wrong, right)
        return line

    return mend


def typed(more: str = "") -> Mend:
    """Runs the command that the message prints, its first group, and tries again, with more words."""

    def mend(desk: Desk, match: re.Match[str], line: str) -> str:
        desk.succeeds(match[1])
        return f"{line} {more}"

    return mend


def turned_to(more: str = "") -> Mend:
    """Takes the command that the message prints in place of the first one."""
    return lambda _desk, match, _line: f"{match[1]} {more}"


def started(desk: Desk, match: re.Match[str], _line: str) -> str:
    """Checks that a run can start with the command that the message prints, without starting it."""
    return match[1].replace("rollcast serve RUN.yaml", CAN_START)


def of_the_list(desk: Desk, match: re.Match[str], line: str) -> str:
    """Takes a run from the list that the printed command shows."""
    assert "old" in desk.succeeds(match[1])
    return line.replace("nosuch", "old")


def joined(desk: Desk, match: re.Match[str], line: str) -> str:
    """Makes the folder of an actor with the printed command and a join code."""
    code = next(word for word in desk.succeeds("rollcast certs init made").split() if word.startswith("rollcast1."))
    desk.succeeds(match[1], stdin=code + "\n")
    return line


def renamed_variable(desk: Desk, match: re.Match[str], line: str) -> str:
    """Gives the variable the name that the message has."""
    ((_, value),) = desk.environment.items()
    desk.environment = {match[1]: value}
    return line


def moved(wrong: str, right: str) -> Mend:
    """Gives a file the name that the command line has."""

    def mend(desk: Desk, _match: re.Match[str], line: str) -> str:
        shutil.move(desk.folder / wrong, desk.folder / right)
        return line

    return mend


def with_path(folder: str) -> Mend:
    """Names a folder in PYTHONPATH."""

    def mend(desk: Desk, _match: re.Match[str], line: str) -> str:
        desk.environment = {"PYTHONPATH": str(desk.folder / folder)}
        return line

    return mend


def with_build(desk: Desk, _match: re.Match[str], line: str) -> str:
    """Names an executable that exists, and cannot play."""
    build = desk.folder / "Game.x86_64"
    desk.write(build.name, "#!/bin/sh\nexit 3\n")
    build.chmod(0o700)
    return line.replace("Nope", build.name)


def _walk(old: str, new: str) -> str:
    assert old in WALK
    return WALK.replace(old, new)


FILE_OF_RUN: Final = {"results/run/run_state.pt": "x", "results/run/generation": "1", "results/run/summary.json": "{}"}
SERVE: Final = "rollcast serve run.yaml --run-id run --address 127.0.0.1:0 --max-wall-seconds 20"
GYM: Final = f"rollcast act gym --env walk:Walk {PLAYS}"
ONE_AGENT: Final = r"use (rollcast act gym --env \S+)"

LEARNER: Final = (
    Cause("a key that is spelled wrong", CAN_START, 11, r"did you mean '(\w+)'", edited("run.yaml", "bufer_size"),
          files={"run.yaml": RUN.replace("buffer_size", "bufer_size")}),
    Cause("a block that is spelled wrong", CAN_START, 11, r"did you mean '(\w+)'", edited("run.yaml", "behaviours"),
          files={"run.yaml": RUN.replace("behaviors", "behaviours")}),
    Cause("a trainer that is spelled wrong", CAN_START, 11, r"did you mean '(\w+)'", edited("run.yaml", "pp0"),
          files={"run.yaml": RUN.replace("ppo", "pp0")}),
    Cause("a text for a number", CAN_START, 11, r"buffer_size: must be a finite number, got 'many'",
          rewritten("run.yaml", "many", "1024"), files={"run.yaml": RUN.replace("1024", "many")}),
    Cause("tabs in a run file", CAN_START, 11, r":2: .*indent with spaces", rewritten("run.yaml", "\tB", "  B"),
          files={"run.yaml": "behaviors:\n\tB: {trainer_type: ppo}\n"}),
    Cause("an empty run file", CAN_START, 11, r"needs at least behaviors", rewritten("run.yaml", "#", RUN),
          files={"run.yaml": "#"}),
    Cause("a run file that does not exist", CAN_START.replace("run.yaml", "mine.yaml"), 11, r"give the path of a run file",
          replaced("mine.yaml", "run.yaml")),
    Cause("a behavior in --set that is spelled wrong", f"{CAN_START} --set behaviors.b.max_steps=5", 11,
          r"did you mean '(\w+)'", replaced(".b.", ".B.")),
    Cause("a key in --set that is spelled wrong", f"{CAN_START} --set rollcast.adress=127.0.0.1:0", 11,
          r"did you mean '(\w+)'", instead("adress")),
    Cause("a variable that is spelled wrong", CAN_START, 11, r"did you mean '(ROLLCAST_\w+)'", renamed_variable,
          variables={"ROLLCAST_ADRESS": "127.0.0.1:0"}),
    Cause("a flag that is spelled wrong", f"{CAN_START} --run-ID x", 10, r"did you mean (--[\w-]+)", instead("--run-ID")),
    Cause("an address that is a URL", f"{CAN_START} --address http://127.0.0.1:0", 11, r"without the scheme of a URL",
          replaced("http://", "")),
    Cause("an address without a port", f"{CAN_START} --address 127.0.0.1", 11, r"host:port", replaced("127.0.0.1", "127.0.0.1:0")),
    Cause("plain text for other machines, with TLS", f"{SERVE} --address 0.0.0.0:0", 11,
          r"with (rollcast certs init \w+) and give (?:--certs certs)", lambda desk, match, _line: (
              desk.succeeds(match[1]), f"{CAN_START} --address 0.0.0.0:0 --certs certs")[1]),
    Cause("plain text for other machines, trusted", f"{CAN_START} --address 0.0.0.0:0", 11, r"give (--insecure)", added()),
    Cause("plain text for other machines, not meant", f"{CAN_START} --address 0.0.0.0:0", 11, r"listen on (127.0.0.1)",
          instead("0.0.0.0")),  # noqa: S104 - replaced, not listened on
    Cause("certificates that were never made", f"{SERVE} --certs mine", 11, r"(rollcast certs init mine) makes it",
          lambda desk, match, _line: (desk.succeeds(match[1]), f"{CAN_START} --certs mine")[1]),
    Cause("a run that exists, replaced", SERVE, 12, r"start over with (--force)",
          lambda _desk, match, _line: f"{CAN_START} --run-id run {match[1]}", files=FILE_OF_RUN),
    Cause("a run that exists, beside it", SERVE, 12, r"choose another (--run-id)",
          lambda _desk, match, _line: f"{CAN_START} {match[1]} two", files=FILE_OF_RUN),
    Cause("a run to resume that there is not", f"{CAN_START} --run-id nosuch --resume", 13, r"leave --resume out",
          replaced("--resume", "")),
    Cause("a run id that is a path upwards", f"{CAN_START} --run-id ../x", 11, r"it has \. or \.\. in it", replaced("../x", "x")),
    Cause("a device that there is not", f"{SERVE} --torch-device cuda:99", 11, r"set it to (cpu)",
          lambda _desk, match, _line: f"{CAN_START} --torch-device {match[1]}"),
    Cause("an example that there is not", "rollcast init cart-pole", 10, r"the examples are .*?\b(cartpole)\b",
          instead("cart-pole")),
    Cause("an example that is there already", "rollcast init cartpole", 10, r"cartpole.yaml exists; move it",
          moved("cartpole.yaml", "mine.yaml"), files={"cartpole.yaml": ""}),
    *(Cause(f"{command} of a run that there is not", f"rollcast {command} nosuch --results-dir other", 13,
            r"(rollcast runs --results-dir other) lists", of_the_list, 21)
      for command in ("status", "page", "pause", "save", "drain", "healthcheck")),
    Cause("status where none runs", "rollcast status --results-dir other", 21,
          r"start one with (rollcast serve RUN.yaml --results-dir other)", started),
    Cause("an address without a port", "rollcast status --control 127.0.0.1", 10, r"host:port with a port",
          replaced("127.0.0.1", "127.0.0.1:1"), 21),
    Cause("evaluate a run elsewhere", "rollcast evaluate nosuch --results-dir other", 13,
          r"(rollcast runs --results-dir other) lists", of_the_list, 15),
    Cause("a tournament of a run elsewhere", "rollcast tournament nosuch --results-dir other", 13,
          r"(rollcast runs --results-dir other) lists", of_the_list, 15),
    Cause("a backup of a run elsewhere", "rollcast backup nosuch copies --results-dir other", 13,
          r"(rollcast runs --results-dir other) lists", of_the_list),
    Cause("compare a run elsewhere", "rollcast compare nosuch --results-dir other", 13,
          r"(rollcast runs --results-dir other) lists", of_the_list, 10),
    Cause("the runs of a folder that there is not", "rollcast runs", 10, r"name the folder with (--results-dir)",
          added("other")),
    Cause("certificates a second time", "rollcast certs init made", 10, r"(rollcast certs renew made)", turned_to(),
          files={}),
    Cause("a token without an authority", "rollcast certs client made x", 10, r"with (rollcast certs init made)",
          typed()),
    *(Cause(f"{command} without what it needs", f"rollcast {command}", 10, rf"see (rollcast {command} --help)",
            turned_to()) for command in ("compare", "backup", "evaluate", "tournament", "trainer", "certs init")),
    Cause("a trainer with half of its place", "rollcast trainer --learner nowhere --rank 1 --trainers 2", 10,
          r"--learner 'nowhere' must be host:port", replaced("nowhere --rank 1 --trainers 2", "127.0.0.1:1 --rank 1"), 10),
)  # fmt: skip

ACTOR: Final = (
    Cause("gym without an environment", f"rollcast act gym {PLAYS}", 10, r"give (--env CartPole-v1) or",
          lambda _desk, match, _line: f"rollcast act gym {match[1]} {ALONE}", 20),
    Cause("pettingzoo without an environment", f"rollcast act pettingzoo {ALONE}", 10, r"give (--env \S+) or", added(), 20),
    Cause("boards without a game", f"rollcast act boards {ALONE}", 10, r"give (--game shogi)", added(), 20),
    Cause("an id of Gymnasium for pettingzoo", "rollcast act pettingzoo --env CartPole-v1", 11, ONE_AGENT, turned_to(ALONE), 20),
    Cause("a game that is spelled wrong", f"rollcast act boards --game tictactoe {ALONE}", 11, r"did you mean (\w+)",
          instead("tictactoe"), 20),
    Cause("a game that there is not", f"rollcast act boards --game xyzzy {ALONE}", 11, r"it has .*\b(tic_tac_toe)\b",
          instead("xyzzy"), 20),
    Cause("an older version of an id", f"rollcast act gym --env CartPole-v9 {ALONE}", 11, r"versioned environments: .*`(v1)`",
          instead("v9"), 20),
    Cause("an id that is spelled wrong", f"rollcast act gym --env Cartpole-v1 {ALONE}", 11, r"Did you mean: `(\w+)`",
          instead("Cartpole"), 20),
    Cause("a file for a module", GYM.replace("walk:Walk", "walk.py:Walk"), 11, r"write (walk:Walk)", instead("walk.py:Walk")),
    Cause("a module in another folder", GYM.replace("walk:Walk", "distant:Walk"), 11, r"looked in .* and PYTHONPATH",
          with_path("far"), files={"far/distant.py": WALK}),
    Cause("an environment of the package gym", GYM.replace("walk:Walk", "old:Walk"), 11, r"write `(import gymnasium as gym)`",
          edited("old.py", "import gym  # of 2021"), files={"old.py": WALK.replace("import gymnasium, numpy", "import gym  # of 2021\nimport numpy")
                                                    .replace("gymnasium.", "gym.")}),
    Cause("a reward in parts", f"rollcast act gym --env pair:Walk {PLAYS}", 40, r"(--wrap) with a function that returns "
          r"(gymnasium.wrappers.TransformReward\(env, sum\))",
          lambda desk, match, line: (desk.write("summed.py", f"import gymnasium\ndef summed(env):\n    return {match[2]}\n"),
                                     f"{line.replace('it.demo', 'two.demo')} {match[1]} summed:summed")[1],
          files={"pair.py": _walk("reward, end = -0.1", "reward, end = numpy.array([0.5, 1.0])")}),
    Cause("a reward that is a text", f"rollcast act gym --env text:Walk {PLAYS}", 40, r"got '0.5'; return a float",
          lambda desk, _match, line: (desk.edit("text.py", '"0.5"', "0.5"), line.replace("it.demo", "two.demo"))[1],
          files={"text.py": _walk("reward, end = -0.1", 'reward, end = "0.5"')}),
    Cause("an end in parts", f"rollcast act gym --env ends:Walk {PLAYS}", 40, r"return bool\(terminated\.any\(\)\)",
          lambda desk, _match, line: (desk.edit("ends.py", "reward, end,", "reward, bool(end.any()),"),
                                      line.replace("it.demo", "two.demo"))[1],
          files={"ends.py": _walk("self.x >= 5", "numpy.array([self.x >= 5] * 2)")}),
    Cause("a reset without a seed", GYM.replace("walk:Walk", "seed:Walk"), 11, r"write (def reset\(self, \*, seed=None, options=None\))",
          edited("seed.py", "def reset(self)"), files={"seed.py": _walk("(self, *, seed=None, options=None)", "(self)")}),
    Cause("several agents for gym", "rollcast act gym --env many:Many", 11, r"use (rollcast act pettingzoo --env many:Many)",
          lambda desk, match, _line: (desk.write("many.py", "from mpe2.simple_spread_v3 import parallel_env as Many\n"),
                                      f"{match[1]} {ALONE}")[1], 20,
          files={"many.py": WALK + "class Many(Walk):\n    possible_agents = ['a']\n    action_space = gymnasium.spaces.Dict("
                                   "{'a': gymnasium.spaces.Discrete(2)})\n"}),
    Cause("another machine in plain text", "rollcast act gym --env CartPole-v1 --learner 192.0.2.1:1 --connect-timeout 1", 10,
          r"pass (--insecure)", added(), 20),
    Cause("a learner that is a URL", f"rollcast act gym --env CartPole-v1 {ALONE}".replace("127", "http://127"), 10,
          r"must be host:port alone", replaced("http://", ""), 20),
    Cause("a learner without a port", f"rollcast act gym --env CartPole-v1 {ALONE}".replace(":1 ", " "), 10,
          r"must be host:port .*, as in 127.0.0.1(:\d+)", replaced("127.0.0.1", "127.0.0.1:1"), 20),
    Cause("an underscore in a flag", f"rollcast act gym --env CartPole-v1 {ALONE} --num_envs 2", 10, r"did you mean (--[\w-]+)",
          instead("--num_envs"), 20),
    Cause("arguments that are no JSON", f"rollcast act gym --env CartPole-v1 {ALONE} --env-kwargs '{{x: 1}}'", 10,
          r"is not JSON: Expecting property name enclosed in double quotes", replaced("{x: 1}", '{"sutton_barto_reward": true}'), 20),
    Cause("episodes to record without a file", "rollcast act gym --env walk:Walk --policy walk:right --record-episodes 1", 10,
          r"add (--record) FILE.demo", added("it.demo")),
    Cause("a recording that exists", GYM, 13, r"choose another name", replaced("it.demo", "two.demo"), files={"it.demo": ""}),
    Cause("a variable of an actor that is spelled wrong", f"rollcast act gym --env CartPole-v1 {ALONE}", 10,
          r"did you mean (ROLLCAST_ACTOR_\w+)", renamed_variable, 20, variables={"ROLLCAST_ACTOR_NUM_ENV": "2"}),
    Cause("a folder that nobody joined", "rollcast act gym --env CartPole-v1 --certs mine --connect-timeout 1", 10,
          r"with (rollcast join mine)", joined, 20),
    Cause("a build that there is not", f"rollcast act unity --env Nope {ALONE}", 11, r"name the executable", with_build, 20),
    Cause("players without a build", f"rollcast act unity --num-envs 2 {ALONE}", 10, r"leave --num-envs out",
          replaced("--num-envs 2", ""), 20),
    Cause("a model to play without its game", "rollcast play Nope.onnx", 10, r"give (--game shogi)", added(), 10),
    Cause("rollcast unity with a key that is spelled wrong", "rollcast unity run.yaml", 11, r"did you mean '(\w+)'",
          edited("run.yaml", "bufer_size"), 61, files={"run.yaml": UNITY_RUN.replace("buffer_size", "bufer_size")}),
    Cause("rollcast unity with a run that exists", "rollcast unity run.yaml --run-id run", 12, r"start over with (--force)",
          added(), 61, files=FILE_OF_RUN | {"run.yaml": UNITY_RUN}),
    Cause("rollcast unity with a state that is missing", "rollcast unity run.yaml --run-id run --resume", 13,
          r"use (--resume=auto)", lambda _desk, match, line: line.replace("--resume", match[1]), 61,
          files={"results/run/generation": "1", "run.yaml": UNITY_RUN}),
    Cause("rollcast unity with its run file as the build", "rollcast unity --env run.yaml", 61,
          r"without a flag: (rollcast unity run.yaml --env BUILD)", lambda _desk, match, _: match[1].replace("BUILD", "Nope"), 61),
    Cause("rollcast unity without its run file", "rollcast unity mine.yaml", 11, r"give the path of a run file",
          replaced("mine.yaml", "run.yaml"), 61, files={"run.yaml": UNITY_RUN}),
)  # fmt: skip
