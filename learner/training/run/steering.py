"""Changes settings while a run trains: hyperparameters, the last step, the target, evaluations and lessons.

Which settings can change is a part of their type (`learner.shared.settings.base.Live`). A change takes effect between two
updates. It is kept in the run state and lasts until it is undone, or until the run file has another value for its setting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from pydantic import ValidationError
from rollcast.errors import SettingRefused

from learner.link.control import Request, RequestKind, SettingChange, SettingValue
from learner.shared.exits import UserError
from learner.shared.settings.base import Path, SettingsModel, Value
from learner.shared.settings.layers import from_text
from learner.shared.settings.problems import Problems, did_you_mean
from learner.shared.settings.service import ServiceSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import RunPart, Trainers

log = structlog.get_logger(__name__)

TEXT_TITLE: Final = "Changes"
"""Title of the text that marks a change in TensorBoard."""
_BEHAVIORS, _SERVICE, _LESSON = "behaviors", "rollcast", "lesson"
"""First keys of the paths of settings: those of the run file, and that of the lesson of an environment parameter."""
_MOST_CHARACTERS: Final = 80
_FIXED: Final = (
    "cannot change while the run trains, because networks, buffers or connections are made with it: set it in the run file for "
    "another start"
)
Block = TypeVar("Block", bound=SettingsModel)


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    old: SettingValue
    new: SettingValue


class Steering(RunPart):
    """Changes settings, undoes changes, and restores those that were in force. Use it in the trainers' thread.

    Args:
        service: The settings of the service in the run file.
        lessons: Lessons of the run.
        on_service: Called with the service's settings when they have changed.
        note: Records a change, the principal who requested it, and whether it undoes another one.
    """

    name = "changes"

    def __init__(
        self,
        service: ServiceSettings,
        lessons: Lessons,
        on_service: Callable[[ServiceSettings], object],
        note: Callable[[SettingChange, str, bool], object],
    ) -> None:
        self._given = self._service = service
        self._lessons = lessons
        self._on_service = on_service
        self._note = note
        self._groups: list[tuple[_Entry, ...]] = []  # one for each request, which `undo` takes back as a whole

    def changed(self) -> Mapping[str, float | None]:
        """Returns `Stats.changed`."""
        target = self._service.target_return
        return {} if target == self._given.target_return else {"target_return": target}

    def change(self, request: Request, trainers: Trainers) -> tuple[SettingChange, ...]:
        """Carries out a request to set or undo, completely or not at all.

        Raises:
            SettingRefused: It cannot be carried out; the message says why.
        """
        is_undo = request.kind is RequestKind.UNDO
        if not is_undo:
            wanted = dict(self._wanted(name, text, trainers) for name, text in request.values.items())
            if len(wanted) < len(request.values):
                raise SettingRefused("one setting is given by two names: give it once")
        elif self._groups:
            wanted = {entry.path: entry.old for entry in self._groups[-1]}
        else:
            raise SettingRefused("there is nothing to undo: no change is in force")
        entries = self._apply(wanted, trainers)
        if is_undo:
            self._groups.pop()
        elif entries:
            self._groups.append(entries)
        changes = tuple(SettingChange(_name(entry.path), entry.old, entry.new) for entry in entries)
        for entry, change in zip(entries, changes, strict=True):
            self._note(change, request.principal, is_undo)
            log.info("setting_undone" if is_undo else "setting_changed", change=change.text, by=request.principal)
            for name, trainer in trainers.items():
                if entry.path[0] != _BEHAVIORS or entry.path[1] == name:
                    trainer.stats_reporter.write_text(TEXT_TITLE, change.text, trainer.get_step)
        return changes

    def trainer_added(self, trainer: Trainer) -> None:
        """Gives a new trainer the changed settings that were in force."""
        settings = self._in_force((_BEHAVIORS, trainer.brain_name), trainer.trainer_settings)
        if settings != trainer.trainer_settings:
            trainer.change_settings(settings)

    def state_dict(self) -> dict[str, Any]:
        """Returns the changes that are not undone, the oldest first."""
        return {"groups": [[[list(each.path), each.old, each.new] for each in group] for group in self._groups]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            TypeError, ValueError: The state is not one that was saved here.
        """
        self._groups = [tuple(_entry(*saved) for saved in group) for group in state.get("groups", ())]
        service = self._in_force((_SERVICE,), self._given)
        if service != self._service:
            self._service = service
            self._on_service(service)

    def _blocks(self, trainers: Trainers) -> dict[Path, SettingsModel]:
        """Returns the blocks with settings that can change, by their paths."""
        found: dict[Path, SettingsModel] = {
            (_BEHAVIORS, name): trainer.trainer_settings for name, trainer in trainers.items()
        }
        return {**found, (_SERVICE,): self._service}

    def _wanted(self, name: str, text: str, trainers: Trainers) -> tuple[Path, Value]:
        """Returns the path of a setting by its name, which may be shortened to its end, and its new value.

        Raises:
            SettingRefused: There is no such setting, several behaviors have it, or it cannot change.
        """
        shown = repr(name[:_MOST_CHARACTERS])
        first, _, parameter = name.partition(".")
        if first == _LESSON and first not in trainers:
            if parameter in self._lessons.numbers():
                return (_LESSON, parameter), text
            raise SettingRefused(_unknown(name, [f"{_LESSON}.{each}" for each in self._lessons.numbers()]))
        blocks = self._blocks(trainers)
        settings = {path: is_live for place, block in blocks.items() for path, is_live in _settings(block, place)}
        found = [path for path in settings if _is_named(path, name)]
        live = [path for path in found if settings[path]]
        if found and not live:
            raise SettingRefused(f"{'.'.join(_below(found[0]))} {_FIXED}")
        if not found and not trainers:
            raise SettingRefused(f"{shown} cannot be set before an actor has declared a behavior: start an actor")
        if not found:
            raise SettingRefused(
                _unknown(name, [_name(path, trainers) for path, is_live in settings.items() if is_live])
            )
        if len(live) > 1:
            raise SettingRefused(f"several behaviors have {shown}: set {' or '.join(map(_name, live))}")
        tree: Value = blocks[_block(live[0])].model_dump(mode="json")
        for key in reversed(_block(live[0])):
            tree = {key: tree}
        return live[0], from_text(text, live[0], tree if isinstance(tree, dict) else {})

    def _apply(self, wanted: Mapping[Path, Value], trainers: Trainers) -> tuple[_Entry, ...]:
        """Sets values, all or none; returns what has changed.

        Raises:
            SettingRefused: A value is invalid, or a trainer cannot take it over.
        """
        lessons = {path[1]: self._lesson(path, value) for path, value in wanted.items() if path[0] == _LESSON}
        entries = [
            _Entry((_LESSON, name), self._lessons.numbers()[name] + 1, number + 1) for name, number in lessons.items()
        ]
        old, new = self._blocks(trainers), dict[Path, Any]()
        for path in (path for path in wanted if path[0] != _LESSON):
            place = _block(path)
            trainer = trainers.get(path[1]) if path[0] == _BEHAVIORS else None
            if place not in old or not (trainer is None or trainer.should_still_train):
                raise SettingRefused(f"{_name(path)} cannot change, because {path[1]} is not trained now")
            if place not in new:
                new[place] = _validated(place, old[place], wanted)
                obstacle = "" if trainer is None else trainer.obstacle_to(new[place])
                if obstacle:
                    raise SettingRefused(obstacle)
            entries.append(_Entry(path, _value(old[place], path), _value(new[place], path)))
        entries = [entry for entry in entries if entry.old != entry.new]
        for place in {_block(entry.path) for entry in entries} & new.keys():
            if place == (_SERVICE,):
                self._service = new[place]
                self._on_service(self._service)
            else:
                trainers[place[1]].change_settings(new[place])
        begun = {entry.path[1]: lessons[entry.path[1]] for entry in entries if entry.path[0] == _LESSON}
        if begun:
            self._lessons.go_to(begun)
        return tuple(entries)

    def _lesson(self, path: Path, value: Value) -> int:
        """Returns the number of a lesson from 0, of its name or its number from 1.

        Raises:
            SettingRefused: There is no such lesson.
        """
        names = self._lessons.names(path[1])
        text = str(value)
        if isinstance(value, str) and value in names:
            return names.index(value)
        if text.isdecimal() and len(text) <= len(str(len(names))) and 1 <= int(text) <= len(names):
            return int(text) - 1
        shown = repr(text[:_MOST_CHARACTERS])
        raise SettingRefused(
            f"{_name(path)}: there is no lesson {shown}; give {', '.join(names)}, or 1 to {len(names)}"
        )

    def _in_force(self, place: Path, block: Block) -> Block:
        """Returns a block of the run file with the changes in force; forgets those whose settings the run file has changed."""
        first: dict[Path, SettingValue] = {}
        last: dict[Path, Value] = {}
        for entry in (entry for group in self._groups for entry in group if _block(entry.path) == place):
            first.setdefault(entry.path, entry.old)
            last[entry.path] = entry.new
        # The value is already the new one if this trainer is added for a second time.
        kept = {path: value for path, value in last.items() if _value(block, path) in (first[path], value)}
        try:
            block = _validated(place, block, kept) if kept else block
        except SettingRefused as error:
            log.warning("changes_not_restored", reason=error.message)
            kept = {}
        replaced = last.keys() - kept
        if replaced:
            log.info("changes_replaced", settings=sorted(map(_name, replaced)), by="the run file")
            groups = (tuple(entry for entry in group if entry.path not in replaced) for group in self._groups)
            self._groups = [group for group in groups if group]
        return block


def _block(path: Path) -> Path:
    """Returns the path of the block to which a setting belongs."""
    return path[:2] if path[0] == _BEHAVIORS else path[:1]


def _below(path: Path) -> Path:
    """Returns the path of a setting below its block."""
    return path[len(_block(path)) :]


def _name(path: Path, behaviors: Collection[str] = ()) -> str:
    """Returns the name of a setting for people; without its behavior if that is the only one."""
    if path[0] == _BEHAVIORS:
        return path[-1] if len(behaviors) == 1 else f"{path[1]}.{path[-1]}"
    return ".".join(path[1:] if path[0] == _SERVICE else path)


def _is_named(path: Path, name: str) -> bool:
    """Returns whether a name means a setting: it is the end of its path, after its behavior or without it."""
    end = name.removeprefix(f"{_BEHAVIORS}.").removeprefix(f"{_block(path)[-1]}.")
    return f".{'.'.join(_below(path))}".endswith(f".{end}")


def _settings(block: SettingsModel, path: Path) -> Iterator[tuple[Path, bool]]:
    """Yields the path of each single value of a block, and whether it can change while a run trains."""
    for key in type(block).model_fields:
        value = getattr(block, key)
        if isinstance(value, SettingsModel):
            yield from _settings(value, (*path, key))
        else:
            yield (*path, key), type(block).is_live(key)


def _value(block: SettingsModel, path: Path) -> Any:
    value: Any = block
    for key in _below(path):
        value = getattr(value, key, None)
    return value


def _unknown(name: str, known: list[str]) -> str:
    near = did_you_mean(name[:_MOST_CHARACTERS], known)
    others = f"; these can change: {', '.join(known)}" if known else ""
    return f"there is no setting {name[:_MOST_CHARACTERS]!r}{near or others}"


def _validated(place: Path, block: Block, values: Mapping[Path, Value]) -> Block:
    """Returns a block with other values for its own settings.

    Raises:
        SettingRefused: A value is invalid, by itself or with the others.
    """
    tree: Any = block.model_dump(mode="json")
    try:
        for path in (path for path in values if _block(path) == place):
            *blocks, key = _below(path)
            functools.reduce(lambda found, each: found[each], blocks, tree)[key] = values[path]
        return type(block).model_validate(tree)
    except ValidationError as error:
        problems = Problems(place[-1])
        problems.add_validation(error)
        raise SettingRefused(problems.errors[0]) from None
    except (UserError, LookupError, TypeError) as error:  # of a package, or of a saved path that no longer exists
        raise SettingRefused(f"{place[-1]}: {error}") from None


def _entry(path: Any, old: SettingValue, new: SettingValue) -> _Entry:
    """Reads a saved change.

    Raises:
        ValueError: It is none.
    """
    is_place = isinstance(path, list) and len(path) > 1 and all(isinstance(key, str) for key in path)
    if not is_place or not all(value is None or isinstance(value, bool | int | float | str) for value in (old, new)):
        raise ValueError("a saved change of a setting has no path or no values")
    return _Entry(tuple(path), old, new)
