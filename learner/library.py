"""Trains from Python: starts learners as processes of their own, and steers them. `rollcast.train` and `rollcast.serve` are its names.

A process of its own leaves signals, logs, threads and exit of the caller's process alone, and the caller needs neither torch
nor gRPC. Its arguments are those of the command line, and so are its messages: as the errors that are raised here.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from rollcast.exits import RollcastError
from rollcast.parsers import subparsers_of

from learner.cli.cli import build_parser
from learner.cli.operator import Operator
from learner.cli.train_flags import DEFAULT_ENVS
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import read_addresses
from learner.shared.observe.csvfile import STATS_FILE
from learner.shared.observe.curves import read_statistics
from learner.shared.observe.summary import SUMMARY_FILE, read_small_json
from learner.shared.observe.view import RunView
from learner.shared.runfolder.names import safe_name
from learner.shared.settings.layers import EVERY_BEHAVIOR
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from learner.start.actors import Failure, end_actor, start_actor
from learner.start.train import ENVIRONMENT

LOOK_SECONDS: Final = 0.25
"""Time between two looks at a run."""
END_SECONDS: Final = 600.0
"""Longest end of a run that is asked to end: it saves, and its actors finish what they do."""
_KEPT_LINES: Final = 200
_PROGRAM: Final = (sys.executable, "-m", "rollcast.watched", "rollcast")
_LOG: Final = ("--log-format", "json", "--log-level", "info")
"""Flags with which a learner writes the lines that a `Run` reads."""
_OF_EXTRINSIC: Final = frozenset({"gamma", "strength"})


class Run:
    """A learner in a process of its own, and its actors, if it has started them. `train` and `serve` make it.

    It is a context manager, which stops the run at the end of the block, and an iterator over the run's updates::

        with rollcast.train("CartPole-v1", wait=False) as run:
            for state in run:
                print(state.behaviors[0].version, state.behaviors[0].mean_return_100)

    The process ends with the caller's, as after a signal: everything is saved.

    Args:
        arguments: The command and its arguments.
        held: What the run needs until its end, as the file of its settings.
        actor: Starts an actor in this process for the learner of an address, and calls its second argument with the error of
            the actor when it has ended; None for none.

    Raises:
        UserError: The run cannot start.

    Attributes:
        folder: The run folder.
        address: Address for actors, ``host:port``.
        page: Address of the status page; empty if there is none.
    """

    def __init__(
        self, arguments: Sequence[str], held: contextlib.ExitStack, actor: Callable[..., Any] | None = None
    ) -> None:
        self._held = held
        self._actor: Any = None
        self._actor_error: RollcastError | None = None
        self._failure = Failure()
        self._details: deque[str] = deque(maxlen=_KEPT_LINES)
        self._has_started = threading.Event()
        self._code: int | None = None
        self.folder, self.address, self.page = Path(), "", ""
        self._process = start_actor([*_PROGRAM, *arguments, *_LOG], subprocess.PIPE, {"PYTHONPATH": _search_path()})
        self._reader = threading.Thread(target=self._read, name="rollcast-run", daemon=True)
        self._reader.start()
        try:
            self._has_started.wait()
            if actor is not None and self._code is None:
                self._actor = actor(self.address, self._take_end_of_actor)
        except BaseException:
            self.stop()
            raise
        if self._code is not None:
            self._raise()

    @property
    def id(self) -> str:
        """The name of the run."""
        return self.folder.name

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._reader.is_alive()

    @property
    def state(self) -> RunView:
        """The state of the run now.

        Raises:
            UserError: The learner does not answer, as after its end.
        """
        return self._operator().status().run

    @property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``: the results of the run, or of its last start; empty before its first end."""
        return read_small_json(self.folder / SUMMARY_FILE)

    def __iter__(self) -> Iterator[RunView]:
        """Yields the state after each update, of several in a short time the last, until the run ends.

        Raises:
            UserError: The run failed.
        """
        versions: list[int] = []
        while self.is_running:
            with contextlib.suppress(UserError):  # it ends, or is just busy with its end
                state = self.state
                found = [each.version for each in state.behaviors]
                if found != versions:
                    versions = found
                    yield state
            self._pause(LOOK_SECONDS)
        self.wait()

    def wait(self, seconds: float | None = None) -> Self:
        """Waits for the end of the run, and returns it. Ctrl-C stops the run, which saves, before it is raised.

        Args:
            seconds: Longest wait; None for no limit.

        Raises:
            TimeoutError: The run has not ended in time; it goes on.
            UserError: The run failed.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while self.is_running:
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"run {self.id} has not ended within {seconds:g} s")
            self._pause(LOOK_SECONDS)
        self._raise()
        return self

    def stop(self) -> None:
        """Ends the run as Ctrl-C ends the command: it saves, and its actors end. Does nothing after the end."""
        if self.is_running:
            self._process.terminate()
            self._reader.join(END_SECONDS)
        end_actor(self._process, 0.0)
        if self._actor is not None:
            self._actor.stop()

    def pause(self) -> None:
        """Pauses training, and holds the actors.

        Raises:
            UserError: The learner does not answer.
        """
        self._operator().pause()

    def resume(self) -> None:
        """Ends a pause.

        Raises:
            UserError: The learner does not answer.
        """
        self._operator().resume()

    def save(self) -> Path:
        """Saves a checkpoint of everything, and returns its path.

        Raises:
            UserError: Nothing is trained yet, or it cannot be saved.
        """
        return Path(self._operator().save_checkpoint()).absolute()

    def set(self, name: str | None = None, value: object = None, /, **values: object) -> dict[str, Any]:
        """Changes settings from the next update on, several at once all or none.

            run.set("learning_rate", 1e-4)
            run.set(learning_rate=1e-4, beta=0.01)
            run.set("Walker.max_steps", 2_000_000)  # one of several behaviors

        `rollcast set --help` lists what can change. A change is recorded, and lasts until `undo`.

        Args:
            name: Name of a setting.
            value: Its new value.
            values: Further settings.

        Returns:
            The new values by name; settings that already had theirs are left out.

        Raises:
            UserError: A setting is unknown, cannot change while the run trains, or cannot have this value.
        """
        given = {**({} if name is None else {name: value}), **values}
        if not given:
            raise UserError(ExitCode.USAGE, "give a setting and its value: run.set('learning_rate', 1e-4)")
        texts = {key: each if isinstance(each, str) else json.dumps(each) for key, each in given.items()}
        return {each["name"]: each["new"] for each in self._operator().set(texts)}

    def undo(self) -> dict[str, Any]:
        """Undoes the last change by `set`, or by another operator, that is not undone; returns what is in force by name.

        Raises:
            UserError: There is none.
        """
        return {each["name"]: each["new"] for each in self._operator().undo()}

    def history(self, behavior: str | None = None) -> dict[str, NDArray[np.float64]]:
        """Returns the statistics that the run has written, by name; ``pandas.DataFrame(run.history())`` is their table.

        Args:
            behavior: Name of the behavior; None for the only one.

        Returns:
            Arrays ``[N]`` with a value for each summary (``summary_freq``), NaN where one lacks it: ``step`` (environment steps
            trained), ``seconds``, and all that TensorBoard shows, such as ``Environment/Cumulative Reward``.

        Raises:
            UserError: There are several behaviors.
        """
        path = self._behavior_folder(behavior) / STATS_FILE
        return {name: np.array(values) for name, values in read_statistics(path).items()}

    def latest_policy(self, behavior: str | None = None) -> Any:
        """Returns the newest policy, as `rollcast.load_policy` does; a run that trains saves a checkpoint first.

        Args:
            behavior: Name of the behavior; None for the only one.

        Raises:
            RollcastError: Nothing is trained yet, or there are several behaviors.
        """
        from rollcast import load_policy  # noqa: PLC0415 - of the other side

        if self.is_running:
            self.save()
        return load_policy(self.folder, behavior=behavior)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        how = "running" if self.is_running else f"ended with exit code {self._code}"
        return f"Run({str(self.folder)!r}, {how})"

    def _operator(self) -> Operator:
        addresses = read_addresses(self.folder)
        if addresses is None:
            raise UserError(ExitCode.UNREACHABLE, f"run {self.id} does not listen: it has ended, or ends")
        return Operator.of(addresses)

    def _behavior_folder(self, behavior: str | None) -> Path:
        if behavior is not None:
            return self.folder / safe_name(behavior)
        found = sorted(path.parent for path in self.folder.glob(f"*/{STATS_FILE}"))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise UserError(ExitCode.USAGE, f"run {self.id} has the behaviors {names}: name one")
        return found[0] if found else self.folder / "none"

    def _pause(self, seconds: float) -> None:
        try:
            self._reader.join(seconds)
        except KeyboardInterrupt:
            self.stop()
            raise

    def _read(self) -> None:
        """Reads the lines of the process until its end."""
        with self._process.stdout or contextlib.nullcontext(()) as output:
            for raw in output:
                line = raw.decode(errors="replace").rstrip()
                if line.startswith('{"') and '"learner_start' in line:
                    self._take_start(json.loads(line))
                elif not self._failure.take(line) and line.startswith("  "):
                    self._details.append(line.strip())
        self._code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._held.close()
        self._has_started.set()

    def _take_start(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "learner_starts":  # a resumed run that is finished comes no further
            self.folder = Path(event["folder"]).absolute()
        elif event["event"] == "learner_started":
            self.address, self.page = event["address"], "" if event["page"] == "off" else event["page"]
            self._has_started.set()

    def _take_end_of_actor(self, error: RollcastError | None) -> None:
        """Ends the run when its only actor has failed; one that ends without an error was told to by the learner."""
        if error is not None:
            self._actor_error = error
            self._process.terminate()

    def _raise(self) -> None:
        """Raises the error of the run, if it has failed."""
        if self._actor_error is not None:
            raise self._actor_error
        if self._code:
            found = self._failure.error("the learner", self._code)
            known = {code.value: code for code in ExitCode}  # others are those of an actor, or a signal
            code = known.get(self._code, found.exit_code)
            raise UserError(code, found.message, [*self._details, *found.details], code=found.code)


def _search_path() -> str:
    """Returns the folders in which this program finds modules, for the processes of a run."""
    return os.pathsep.join(dict.fromkeys(each or str(Path.cwd()) for each in sys.path))


def train(
    env: str | Callable[..., Any],
    settings: str | Path | Mapping[str, Any] | None = None,
    *,
    wait: bool = True,
    **arguments: Any,
) -> Run:
    """Trains on an environment of Gymnasium, as ``rollcast train`` does: with a learner and actors on this machine.

        run = rollcast.train("CartPole-v1", max_steps=100_000, learning_rate=3e-4, seed=7)
        run = rollcast.train("mine:Maze", "maze.yaml", num_envs=16, actors=4)

    Args:
        env: A Gymnasium id, ``package:id``, ``module:callable``, or a callable that returns an environment. One that no other
            process can import, as of a notebook or a lambda, is stepped by a thread of this process.
        settings: A run file, or what it would hold; None for the settings of the example for this environment.
        wait: Whether to return after the end of the run, instead of after its start.
        arguments: Flags of ``rollcast train`` (``num_envs``, ``run_id``, ``force``, ``env_kwargs``, ...), and settings of the
            trainer by name: ``max_steps``, ``learning_rate``, ``gamma``, ``hidden_units``, or with a block,
            ``network_settings={"num_layers": 3}``. The latter count for every behavior. ``trainer`` is the trainer type. A class
            or function, here or in `settings`, stands for its name, ``module:name``, of a module that can be imported.

    Raises:
        RollcastError: The run cannot start, or failed; with the message and the exit code of the command.
    """
    if not isinstance(env, str):
        env = spelled(env) or env
    if isinstance(env, str):
        return _started("train", settings, {"env": env, **arguments}, wait=wait)
    return _started_here(env, settings, arguments, wait=wait)


def spelled(thing: Any) -> str:
    """Returns ``module:name`` of a class or function that other processes can import; empty if they cannot."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module is None or name is None or module == "__main__":
        return ""
    try:
        found = operator.attrgetter(name)(sys.modules.get(module))
    except AttributeError:
        return ""
    return f"{module}:{name}" if found is thing else ""


def _started_here(
    env: Callable[..., Any],
    settings: str | Path | Mapping[str, Any] | None,
    arguments: dict[str, Any],
    *,
    wait: bool,
) -> Run:
    """Starts a learner, and an actor in this process."""
    from rollcast import ActorThread  # noqa: PLC0415 - of the other side

    if arguments.pop("actors", 1) != 1:
        raise UserError(
            ExitCode.USAGE, "actors: one thread of this process steps your callable; give num_envs, or module:callable"
        )
    flags = {"num_envs": DEFAULT_ENVS, "name": "local", "certs": arguments.pop("actor_certs", None)}
    flags |= {name: arguments.pop(name) for name in (*ENVIRONMENT, "wrap", "vector") if name in arguments}
    name, kind = ActorThread.describe(env, flags)
    arguments |= {"env": name, "stepped_by_caller": kind}

    def actor(address: str, on_end: Callable[[RollcastError | None], object]) -> ActorThread:
        return ActorThread(env, address, flags, on_end)

    return _started("train", settings, arguments, wait=wait, actor=actor)


def serve(settings: str | Path | Mapping[str, Any] | None = None, *, wait: bool = False, **arguments: Any) -> Run:
    """Starts a learner that waits for actors, as ``rollcast serve`` does.

    Args:
        settings: A run file, or what it would hold; None for the defaults.
        wait: Whether to return after the end of the run, instead of after its start.
        arguments: Flags of ``rollcast serve``, and settings as of `train`.

    Raises:
        RollcastError: The run cannot start, or failed; with the message and the exit code of the command.
    """
    return _started("serve", settings, arguments, wait=wait)


def _started(
    command: str,
    settings: str | Path | Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    *,
    wait: bool,
    actor: Callable[..., Any] | None = None,
) -> Run:
    with contextlib.ExitStack() as stack:
        words = [command]
        if isinstance(settings, Mapping):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rollcast-", ignore_cleanup_errors=True))
            file = Path(folder, "run.yaml")
            file.write_text(json.dumps(_named(settings)), encoding="utf-8")  # JSON is YAML
            words.append(str(file))
        elif settings is not None:
            words.append(str(settings))
        flags = subparsers_of(build_parser())[command]._option_string_actions  # noqa: SLF001 - argparse names them nowhere else
        for name, value in _named(arguments).items():
            flag = f"--{name.replace('_', '-')}"
            if flag in flags and (flag != "--trainer" or settings is None):
                words += _flag(flag, value)
            else:
                words += [word for path, each in _settings(name, value) for word in ("--set", f"{path}={each}")]
        run = Run(words, stack.pop_all(), actor)
    return run.wait() if wait else run


def _named(value: Any) -> Any:
    """Returns arguments or settings with the name of each class and function in them, ``module:name``.

    Raises:
        UserError: One has no name by which the processes of a run find it.
    """
    if isinstance(value, Mapping):
        return {_named(key): _named(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if not callable(value):
        return value
    if name := spelled(value):
        return name
    shown = getattr(value, "__qualname__", f"a {type(value).__name__}")
    raise UserError(
        ExitCode.USAGE,
        f"{shown} cannot be found by the processes of a run, because it is of a main program, a notebook or a function: put it "
        "in a .py file, and import it from there",
    )


def _flag(flag: str, value: object) -> list[str]:
    """Returns a flag as words of a command line; none for False and None."""
    if isinstance(value, list | tuple):
        return [f"{flag}={each}" for each in value]
    if isinstance(value, Mapping):
        return [f"{flag}={json.dumps(value)}"]
    if value is None or value is False:
        return []
    return [flag] if value is True else [f"{flag}={value}"]


def _settings(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yields the dotted path of a setting, or of each one in a block, and its value as text."""
    if "." in name:
        path = name
    elif name == "trainer":
        path = ".".join((*EVERY_BEHAVIOR, "trainer_type"))
    elif name in TrainerSettings.model_fields:
        path = ".".join((*EVERY_BEHAVIOR, name))
    elif name in NetworkSettings.model_fields:
        path = ".".join((*EVERY_BEHAVIOR, "network_settings", name))
    elif name in _OF_EXTRINSIC:
        path = ".".join((*EVERY_BEHAVIOR, "reward_signals", "extrinsic", name))
    elif name in ServiceSettings.model_fields:
        path = f"rollcast.{name}"
    else:
        path = ".".join((*EVERY_BEHAVIOR, "hyperparameters", name))
    yield from _leaves(path, value)


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(f'{path}."{key}"' if "." in key else f"{path}.{key}", each)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
