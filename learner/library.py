"""Trains from Python: starts learners as processes of their own, and steers them. `rollcast.train`, `serve` and `sweep` are its names.

A process of its own leaves signals, logs, threads and exit of the caller's process alone, and the caller needs neither torch
nor gRPC. Its arguments are those of the command line, and so are its messages: as the errors that are raised here.
"""

from __future__ import annotations

import contextlib
import json
import operator
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from rollcast.exits import RollcastError
from rollcast.parsers import subparsers_of

from learner.cli.cli import build_parser
from learner.cli.operator import Operator
from learner.cli.run_flags import needing_extra
from learner.cli.sweep import request_of
from learner.cli.sweep_request import Study
from learner.cli.train_flags import DEFAULT_ENVS
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import read_addresses
from learner.shared.observe.csvfile import STATS_FILE
from learner.shared.observe.curves import read_statistics
from learner.shared.observe.summary import SUMMARY_FILE, read_small_json
from learner.shared.observe.view import RunView
from learner.shared.runfolder.names import safe_name
from learner.shared.settings.by_name import settings_by_name
from learner.start.command_process import CommandProcess
from learner.start.train import ENVIRONMENT

LOOK_SECONDS: Final = 0.25
"""Time between two looks at a run."""


class Run(CommandProcess):
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
        self._actor: Any = None
        self._actor_error: RollcastError | None = None
        super().__init__(arguments, held)
        try:
            self.wait_for_start()
            if actor is not None and self.is_running:
                self._actor = actor(self.address, self._take_end_of_actor)
        except BaseException:
            self.stop()
            raise

    @property
    def id(self) -> str:
        """The name of the run."""
        return self.folder.name

    @property
    def error(self) -> RollcastError | None:
        """The error that ended the run, or its actor in this process; None if it runs, or ended as it should."""
        return self._actor_error or super().error

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
        if (error := self.error) is not None:
            raise error
        return self

    def stop(self) -> None:
        """Ends the run as Ctrl-C ends the command: it saves, and its actors end. Does nothing after the end."""
        super().stop()
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

    def _take_end_of_actor(self, error: RollcastError | None) -> None:
        """Ends the run when its only actor has failed; one that ends without an error was told to by the learner."""
        if error is not None:
            self._actor_error = error
            self.ask_to_stop()


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


def sweep(
    env: str | Callable[..., Any] | None = None,
    settings: str | Path | Mapping[str, Any] | None = None,
    *,
    space: Mapping[str, str | Sequence[Any]],
    **arguments: Any,
) -> Study:
    """Searches settings by many runs, as ``rollcast sweep`` does, and returns the study when all have ended.

        study = rollcast.sweep("CartPole-v1", space={"learning_rate": "log:1e-5:1e-2", "batch_size": [64, 128]}, trials=20)
        run = rollcast.train("CartPole-v1", **study.best_settings)

    Ctrl-C stops its runs, which save, before it is raised; the same call continues the study.

    Args:
        env: A Gymnasium id, ``package:id``, ``module:callable``, or a callable that other processes can import; None lets
            actors elsewhere join each trial.
        settings: A run file, or what it would hold; None for the settings of the example for this environment.
        space: The values of each setting, by its name as in `train`: a text as of ``--space``, or a list to choose from.
        arguments: Flags of ``rollcast sweep`` (``trials``, ``parallel``, ``run_id``, ``num_envs``, ...), and settings as of `train`.

    Raises:
        RollcastError: The sweep cannot start, or its trials fail; with the message and the exit code of the command.
    """
    with needing_extra("rollcast.sweep", "learner,actor,gym,sweep"):
        from learner.cli.sweep_run import sweep as run_sweep  # noqa: PLC0415 - an optional part
    spaces = [
        f"{name}={values if isinstance(values, str) else 'choice:' + json.dumps([*values])[1:-1]}"
        for name, values in space.items()
    ]
    with contextlib.ExitStack() as stack:
        words = _words("sweep", settings, {"env": env, "space": spaces, **arguments}, stack)
        return run_sweep(request_of(build_parser().parse_args(words)))


def _started(
    command: str,
    settings: str | Path | Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    *,
    wait: bool,
    actor: Callable[..., Any] | None = None,
) -> Run:
    with contextlib.ExitStack() as stack:
        run = Run(_words(command, settings, arguments, stack), stack.pop_all(), actor)
    return run.wait() if wait else run


def _words(
    command: str,
    settings: str | Path | Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    held: contextlib.ExitStack,
) -> list[str]:
    """Returns the words of a command line; `held` keeps the file of its settings."""
    words = [command]
    if isinstance(settings, Mapping):
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="rollcast-", ignore_cleanup_errors=True))
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
            words += [word for path, each in settings_by_name(name, value) for word in ("--set", f"{path}={each}")]
    return words


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
