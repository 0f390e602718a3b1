"""Shares a run on the Hugging Face hub, and fetches shared ones: models, settings, summary, curves, and a card about them.

Nothing of the machine leaves with a run: of the settings only those are shared that decide what it learns, without files,
addresses and names of code. The settings of a fetched run are reduced in the same way, as a stranger wrote them.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import rollcast
import yaml
from rollcast import hub
from rollcast.exits import RollcastError
from rollcast.extras import install
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES, MIB
from rollcast.text import printable

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import write_file
from learner.shared.observe.csvfile import STATS_FILE
from learner.shared.observe.curves import RETURN_KEY, read_curves
from learner.shared.observe.journal import MAX_JOURNAL_BYTES, newest_events
from learner.shared.observe.summary import SUMMARY_FILE, read_small_json
from learner.shared.runfolder.choice import BEST_FILE, BEST_MODEL
from learner.shared.runfolder.names import NEWEST
from learner.shared.settings.base import Tree
from learner.shared.settings.layers import values_in
from learner.shared.settings.load import to_yaml
from learner.shared.settings.yaml_reader import read_document
from learner.start.line_chart import Panel, draw, series_of

T = TypeVar("T")
CHECKPOINTS: Final = {"last": NEWEST, "best": BEST_FILE}
SEED: Final = 0
"""Seed of the environments of the evaluation in a card."""
_INTERVAL: Final = 1.959963984540054
"""Standard errors on each side of a 95 % interval."""
MAX_CHECKPOINT_BYTES: Final = 4096 * MIB
_MAX_BYTES: Final = 64 * MIB
_CURVE_EPISODES: Final = 20
_ALTERNATIVE: Final = "Mean return of training against environment steps"
_REFUSED, _MISSING, _WRONG = ExitCode.NOT_ALLOWED, ExitCode.NOTHING_TO_RESUME, ExitCode.USAGE
_CODES: Final = {401: _REFUSED, 403: _REFUSED, 404: _MISSING, 422: _WRONG}
_BLOCKS: Final = ("default_settings", "behaviors", "env_settings", "environment_parameters", "rollcast")
_OF_TRAINING: Final = ("default_settings.", "behaviors.", "environment_parameters.")
_KNOWN: Final[Mapping[str, Collection[str]]] = {
    "env_settings": {"seed"},
    "rollcast": {"on_policy", "max_policy_lag", "device_ring_steps", "lockstep", "evaluation", "trainers"}
    | {"target_return", "target_rating", "reward_buffer_episodes", "checkpoint_seconds"},
}
"""Settings of some blocks that decide what a run learns; of the other `_BLOCKS` all do."""
_OF_A_MACHINE: Final = re.compile(r"[/\\~$]|\w:\w|\.(?:pt|onnx|demo)\b")
"""Found in paths, addresses and ``module:callable``, also in those of a list."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A result of a policy.

    Attributes:
        behavior: Name of the behavior.
        mean: Mean return.
        std: Standard deviation of the returns; None if it is unknown.
        episodes: Number of episodes.
        how: What was played, after the number.
        step: Environment steps that the policy was trained on.
    """

    behavior: str
    mean: float
    std: float | None
    episodes: int
    how: str
    step: int

    @property
    def interval(self) -> str:
        """The 95 % interval of the mean by the normal approximation, as text; empty if it is unknown."""
        if self.std is None:
            return ""
        half = _INTERVAL * self.std / math.sqrt(self.episodes)
        return f"[{self.mean - half:.2f}, {self.mean + half:.2f}]"

    @property
    def value(self) -> str:
        """Mean and standard deviation in the form of the hub."""
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} +/- {self.std:.2f}"


@dataclass(frozen=True, slots=True)
class Pushed:
    """A run to share.

    Attributes:
        folder: Run folder.
        repository: ``user/name``.
        checkpoint: One of `CHECKPOINTS` to share too; None for none.
        env: Environment to play in this process for the card; None takes what the run has measured.
        episodes: Episodes to play.
        is_private: Whether only the account may read the repository, if it is new.
    """

    folder: Path
    repository: str
    checkpoint: str | None
    env: str | None
    episodes: int
    is_private: bool


def push(request: Pushed) -> str:
    """Shares a run in one commit, and returns the address of the repository.

    Raises:
        UserError: The run has no model, its environment cannot be played, or the hub refuses.
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    api = _reported(lambda: hub.open_hub(request.repository))
    files = shared_files(request)
    from huggingface_hub import CommitOperationAdd  # noqa: PLC0415 - an extra

    def send() -> str:
        url = api.create_repo(request.repository, private=request.is_private or None, exist_ok=True)
        added = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=data) for name, data in files.items()]
        api.create_commit(request.repository, added, commit_message=f"Share run {printable(request.folder.name)}")
        return str(url)

    return _reported(lambda: hub.asked(request.repository, send))


def pull(repository: str, folder: Path) -> tuple[list[str], list[str]]:
    """Fetches a shared run into a new folder, and returns the names of its files and of the settings that were left out.

    Raises:
        UserError: The repository holds no run, the hub refuses, or the files cannot be written.
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    try:
        names = _reported(lambda: hub.pull(repository, folder))
    except OSError as error:
        raise UserError(ExitCode.NOT_SAVED, f"{folder} cannot be written: {error.strerror or error}") from None
    if hub.SETTINGS not in names:
        return names, []
    path = folder / hub.SETTINGS
    try:
        tree = read_document(path).tree
    except UserError as error:
        path.unlink()
        return [name for name in names if name != hub.SETTINGS], [f"all of them ({error.message})"]
    settings = public_settings(tree)
    left_out = [printable(name) for name in values_in(tree) if name not in values_in(settings)]
    if left_out:
        write_file(path, to_yaml(settings).encode())
    return names, left_out


def _reported(call: Callable[[], T]) -> T:
    try:
        return call()
    except hub.HubError as error:
        raise UserError(_CODES.get(error.status, ExitCode.UNREACHABLE), str(error)) from None


def shared_files(request: Pushed) -> dict[str, bytes]:
    """Returns the files of a run that are shared, by their names in the repository.

    Raises:
        UserError: The run has no model, a file cannot be read, or the environment cannot be played.
    """
    folder, found = request.folder, dict[str, bytes]()
    try:
        for name in sorted(_behaviors(folder)):
            policy = _of_library(lambda: rollcast.load_policy(folder, behavior=name))  # noqa: B023 - called at once
            found[f"{name}.onnx"] = read_regular(policy.path, MAX_POLICY_BYTES)
            further = {BEST_MODEL: MAX_POLICY_BYTES, STATS_FILE: _MAX_BYTES}
            if request.checkpoint is not None:
                further[CHECKPOINTS[request.checkpoint]] = MAX_CHECKPOINT_BYTES
            for file, most in further.items():
                if (folder / name / file).is_file():
                    found[f"{name}/{file}"] = read_regular(folder / name / file, most)
    except OSError as error:
        raise UserError(ExitCode.USAGE, f"{error.filename} cannot be shared: {error.strerror}") from None
    if not found:
        raise UserError(
            ExitCode.NOTHING_TO_RESUME,
            f"the run in {folder} has no exported model yet: it has one at its first checkpoint; rollcast save makes one",
        )
    tree = read_document(folder / hub.SETTINGS).tree
    settings = public_settings(tree)
    found[hub.SETTINGS] = to_yaml(settings).encode()
    summary = _public_summary(read_small_json(folder / SUMMARY_FILE))
    if summary:
        found[SUMMARY_FILE] = (json.dumps(summary, indent=2) + "\n").encode()
    picture = _curve(folder)
    if picture:
        found[hub.CURVE] = picture.encode()
    left_out = [name for name in values_in(tree) if name.startswith(_OF_TRAINING) and name not in values_in(settings)]
    measured = _measured(request, summary)
    found[hub.CARD] = _card(request, settings, measured, left_out, has_curve=bool(picture)).encode()
    return found


def public_settings(tree: Tree, path: tuple[str, ...] = ()) -> Tree:
    """Returns the settings of a run file that decide what a run learns.

    Left out is what belongs to a machine, to an account or to a process, and each text that may name a file, an address or
    code. A run file of what remains has the defaults of the rest.

    Args:
        tree: A run file, or a block of it.
        path: Place of the block.
    """
    found: Tree = {}
    for key, value in tree.items():
        if not _is_known((*path, key)) or (len(path) > 1 and _OF_A_MACHINE.search(key)):
            continue
        if isinstance(value, dict):
            found[key] = public_settings(value, (*path, key))
        elif not _OF_A_MACHINE.search(str(value)):
            found[key] = value
    return found


def _is_known(path: tuple[str, ...]) -> bool:
    if len(path) == 1:
        return path[0] in _BLOCKS
    return path[1] in _KNOWN.get(path[0], path[1:])


def _public_summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a summary in which the models have no folders."""
    return {
        key: _public_summary(value) if isinstance(value, dict)
        else Path(value).name if key == "onnx_path" and isinstance(value, str)
        else value
        for key, value in summary.items()
    }  # fmt: skip


def _behaviors(folder: Path) -> set[str]:
    """Returns the names of the folders of the behaviors that have a model."""
    return {path.stem for path in folder.glob("*.onnx")} | {path.parent.name for path in folder.glob("*/*.onnx")}


def _of_library(call: Callable[[], T]) -> T:
    try:
        return call()
    except RollcastError as error:
        raise UserError(ExitCode.USAGE, error.message) from None
    except ImportError as error:
        raise UserError(ExitCode.MISSING_EXTRA, f"{error}; {install('learner,actor,gym')}") from None


def _curve(folder: Path) -> str:
    """Returns the picture of the returns; empty for a run without them."""
    try:
        curves = read_curves(folder, RETURN_KEY, _CURVE_EPISODES)
    except UserError:
        return ""
    lines = [(printable(each.behavior), series_of("training", [(each.steps, each.values)])) for each in curves]
    return draw([Panel(name, "environment steps", "mean return", (line,)) for name, line in lines], _ALTERNATIVE)


def _measured(request: Pushed, summary: Mapping[str, Any]) -> list[Measured]:
    """Returns what is known of the policies: episodes played now, else the newest evaluations, else the training's returns."""
    env = request.env
    if env is not None:
        policy = _of_library(lambda: rollcast.load_policy(request.folder))
        result = _of_library(lambda: rollcast.evaluate(policy, env, request.episodes, seed=SEED))
        how = f"of the most likely actions in {env}, seed {SEED}"
        return [Measured(policy.behavior, result.mean, result.std, len(result.returns), how, policy.step)]
    found: dict[str, Measured] = {}
    for event in newest_events(request.folder, MAX_JOURNAL_BYTES):
        name = str(event.get("behavior"))
        if event.get("event") == "evaluation" and name not in found:
            with suppress(KeyError, TypeError, ValueError):  # a file may hold anything
                mean, std = float(event["returns"]["mean"]), float(event["returns"]["std"])
                how = "of an evaluation during training"
                found[name] = Measured(name, mean, std, int(event["episodes"]), how, int(event["step"]))
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        for name, part in summary.get("behaviors", {summary.get("behavior"): summary}).items():
            mean, step = float(part["mean_return_100"]), int(part["env_steps_trained"])
            found.setdefault(str(name), Measured(str(name), mean, None, 100, "of training, the newest ones", step))
    return list(found.values())


def _card(
    request: Pushed, settings: Tree, measured: Sequence[Measured], left_out: Sequence[str], *, has_curve: bool
) -> str:
    """Returns the page of the repository: Markdown below metadata that the hub reads."""
    _, name = request.repository.split("/")
    trainers = sorted({str(value) for path, value in values_in(settings).items() if path.endswith(".trainer_type")})
    rows = ["| behavior | mean return | 95 % interval | std | episodes | at step |", "|---|---|---|---|---|---|"]
    for each in measured:
        numbers = f"{each.mean:.2f} | {each.interval or '-'} | {'-' if each.std is None else f'{each.std:.2f}'}"
        rows.append(f"| {_cell(each.behavior)} | {numbers} | {each.episodes} {_cell(each.how)} | {each.step:,} |")
    parts = [
        f"---\n{yaml.safe_dump(_metadata(request, measured, trainers), sort_keys=False, allow_unicode=True)}---",
        f"# {name}",
        f"A policy that Rollcast trained with {', '.join(trainers) or 'a trainer of its own'}.",
        *(["\n".join(rows)] if measured else []),
        *([f"![{_ALTERNATIVE}]({hub.CURVE})"] if has_curve else []),
        "## Repeat it",
        *_commands(request, f"results/{name}"),
    ]
    if left_out:
        missing = ", ".join(f"`{_cell(each)}`" for each in left_out)
        parts.append(f"{hub.SETTINGS} lacks what names files or code of its author: {missing}.")
    return "\n\n".join(parts) + "\n"


def _metadata(request: Pushed, measured: Sequence[Measured], trainers: Sequence[str]) -> dict[str, Any]:
    """Returns the metadata of a card, as the hub has them for reinforcement learning."""
    task, env = "reinforcement-learning", request.env
    results = [
        {
            "task": {"type": task, "name": task},
            "dataset": {"name": env or each.behavior, "type": env or each.behavior},
            "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": each.value, "verified": False}],
        }
        for each in measured
    ]
    return {
        "library_name": "rollcast",
        "tags": [task, f"deep-{task}", "rollcast", "onnx", *trainers, *([] if env is None else [env])],
        **({"model-index": [{"name": "-".join(trainers) or "policy", "results": results}]} if results else {}),
    }


def _commands(request: Pushed, folder: str) -> Iterator[str]:
    """Yields the commands that repeat the evaluation, and the training."""
    pull, again = f"rollcast pull {request.repository}", f"{folder}/{hub.SETTINGS} --run-id {Path(folder).name}-again"
    if request.env is None:
        yield f"```sh\n{pull}\nrollcast serve {again}\n```"
        yield "The second command trains it again, with actors that you start."
    else:
        called = (
            f"evaluate(load_policy({json.dumps(folder)}), {json.dumps(request.env)}, {request.episodes}, seed={SEED})"
        )
        program = f"from rollcast import evaluate, load_policy; print({called})"
        yield f"```sh\n{pull}\npython -c {shlex.quote(program)}\n```"
        yield "It is trained again by:"
        yield f"```sh\nrollcast train {again} --env {shlex.quote(request.env)}\n```"


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("`", "'")
