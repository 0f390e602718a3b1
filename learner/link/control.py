"""Messages that control a run over the link: requests, answers and the end of the run."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from learner.shared.exits import ExitCode
from learner.shared.observe.summary import BehaviorSummary
from learner.shared.observe.view import RunView

SettingValue: TypeAlias = bool | int | float | str | None
"""A value of a setting that can change while a run trains."""


class RequestKind(enum.StrEnum):
    """Requests that the trainers carry out between two turns."""

    PAUSE = "pause"
    RESUME = "resume"
    SAVE = "save"
    SET = "set"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Request:
    """Requests an action of the trainers after the current update; the reply is `Answer`.

    Attributes:
        number: Number of the request; repeated in the answer.
        kind: The requested action.
        values: With SET, the new values of settings, as text, by name.
        principal: With SET and UNDO, who requests it.
    """

    number: int
    kind: RequestKind
    values: Mapping[str, str] = field(default_factory=dict)
    principal: str = ""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that has changed while the run trains.

    Attributes:
        name: Name with which it can be changed again: ``CartPole.learning_rate``, ``target_return``, ``lesson.length``.
        old: Value before.
        new: Value from the next update on.
    """

    name: str
    old: SettingValue
    new: SettingValue

    @property
    def text(self) -> str:
        """The change in words."""
        return f"{self.name} is {in_words(self.new)}, was {in_words(self.old)}"


def in_words(value: SettingValue) -> str:
    """Returns a value as a run file has it."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers a `Request`.

    Attributes:
        number: Number of the request.
        path: Path of the saved run state; empty for other requests.
        reason: Reason of the error (`rollcast.errors`); empty on success.
        message: Message of the error, for people.
        changes: With SET and UNDO, what has changed; settings that already had the value are left out.
    """

    number: int
    path: str = ""
    reason: str = ""
    message: str = ""
    changes: tuple[SettingChange, ...] = ()


@dataclass(frozen=True, slots=True)
class StopTurns:
    """Stops the trainers' turns after the current one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Sends the trainers the current view of the run: once a second, and when its state changes.

    Attributes:
        view: Current view of the run.
    """

    view: RunView


@dataclass(frozen=True, slots=True)
class Close:
    """Asks the parts of the run to save what they keep; the reply is `Closed`.

    Actors have left, and trainers have stopped or exceeded the time that the service waits for them.

    Attributes:
        reason: Why the run ends.
        view: Last view of the run.
        summaries: Results of each behavior, without its model.
        fault: The service's error in one line; empty if there is none, or if the trainers failed.
    """

    reason: str
    view: RunView
    summaries: Mapping[str, BehaviorSummary] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """Reports that the run has reached its goal and ends normally.

    Attributes:
        reason: ``target_return``, ``target_rating``, ``callback`` or ``evaluated``.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Reports that the trainers have stopped because of an error.

    Attributes:
        exit_code: Exit code of the process.
        message: Last line of the command's output.
    """

    exit_code: ExitCode
    message: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Reports that the trainers have stopped and have sent all their results."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Answers `Close`: the parts have saved what they keep.

    Attributes:
        is_complete: Whether everything that had to be saved was saved.
        fault: A part's error in one line; empty if there is none.
    """

    is_complete: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Freed:
    """Reports how much of the ring of shared memory the process of the trainers has taken.

    Attributes:
        through: Position before which everything is taken.
    """

    through: int


Ending = Finished | Failed | Stopped | Closed
"""Messages of the trainers about the end of a run."""
