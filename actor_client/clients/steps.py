"""Agents of a client's message as arrays: those that ask for actions, and those whose episodes have ended."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast import limits
from rollcast.chunks import GameResult
from rollcast.enums import ObservationKind
from rollcast.errors import MalformedChunk
from rollcast.specs import BehaviorSpec, ObservationSpec
from rollcast.tensors import decode
from rollcast.v1 import client_pb2

from actor_client.clients.messages import BadClientData, shown
from actor_client.policy.actions import LARGEST_OBSERVATION
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents
from actor_client.rollout.agents.recorder import MAX_AGENTS

MAX_TEAM: Final = 2**31 - 1
_MOST_IDS: Final = 1024
"""Behavior ids of one client."""
_STATES: Final = 3
_RESULTS: Final = np.array(
    [GameResult.UNKNOWN, GameResult.LOST, GameResult.DRAWN, GameResult.WON], np.int8
)  # by Outcome
_TEAM: Final = "?team="
_NO_REWARDS: Final = np.zeros(MAX_AGENTS, np.float32)
_NO_GROUPS: Final = np.zeros(MAX_AGENTS, np.int64)
_NO_REWARDS.flags.writeable = _NO_GROUPS.flags.writeable = False


class Part(NamedTuple):
    """The agents of one behavior id in a message.

    Attributes:
        form: Their behavior id.
        asking: Agents that ask for actions.
        ended: Agents whose episodes ended; one that asks too begins its next episode.
        results: Results of their games, a `GameResult` each, int8 [n]; None if nobody says one.
    """

    form: "ClientForm"
    asking: AskingAgents
    ended: EndedAgents
    results: NDArray[np.int8] | None


class _Rows(NamedTuple):
    """The columns of n reports, as the message has them; None = the default for all."""

    ids: NDArray[np.int64]
    observations: list[NDArray[Any]]
    rewards: NDArray[np.float32]
    states: NDArray[np.int64] | None
    masks: NDArray[np.uint8] | None
    groups: NDArray[np.int64]
    group_rewards: NDArray[np.float32]
    outcomes: NDArray[np.int64] | None
    faulty: NDArray[np.bool_] | None

    def part(self, rows: Any) -> "_Rows":
        """Returns some of the reports."""
        columns: list[Any] = [
            [values[rows] for values in column]
            if isinstance(column, list)
            else None
            if column is None
            else column[rows]
            for column in self
        ]
        return _Rows(*columns)


class ClientForm:
    """Reads the agents of one behavior id of one client.

    Args:
        behavior_id: The client's name of the behavior: ``Name`` or ``Name?team=N``.
        spec: Observations and actions of its agents.
        team: Its team.

    Attributes:
        behavior_id: The client's name of the behavior.
        spec: Observations and actions of its agents.
        team: Its team.
        agreed: The run's spec of the behavior, to which this one was compared; None before.
    """

    def __init__(self, behavior_id: str, spec: BehaviorSpec, team: int) -> None:
        self.behavior_id = behavior_id
        self.spec = spec
        self.team = team
        self.agreed: BehaviorSpec | None = None
        self._who = f"behavior {shown(behavior_id)}"
        self._size = sum(part.size for part in spec.observations)
        self._mask_size = spec.action.mask_size
        branches = np.array(spec.action.discrete_branches, np.int64)
        self._branch_begins = np.cumsum(branches) - branches
        self._is_plain = len(spec.observations) == 1 and spec.observations[0].dtype == np.float32
        nothing = self._no_rows()
        self._nobody = AskingAgents(
            nothing.ids, nothing.observations, None, nothing.rewards, nothing.groups, nothing.rewards
        )
        self._no_ends = EndedAgents(
            nothing.ids, nothing.observations, np.zeros(0, np.bool_), nothing.rewards, nothing.groups, nothing.rewards
        )

    def _no_rows(self) -> _Rows:
        none, no_numbers = np.zeros(0, np.int64), np.zeros(0, np.float32)
        empty = [np.zeros((0, *part.shape), part.dtype) for part in self.spec.observations]
        return _Rows(none, empty, no_numbers, None, None, none, no_numbers, None, None)

    def read(self, entries: Sequence[client_pb2.AgentSteps]) -> Part:
        """Returns the agents of the entries that one message has for this behavior id.

        Raises:
            BadClientData: They cannot be used.
        """
        rows = self._rows(entries[0]) if len(entries) == 1 else self._joined([self._rows(entry) for entry in entries])
        if rows.states is None or not rows.states.any():
            self._check_unique(rows.ids, "asks for two actions in one message; an agent gets only one")
            return Part(self, self._asking(rows), self._no_ends, None)
        is_asking = rows.states == client_pb2.AGENT_STATE_UNSPECIFIED
        ended = rows.part(~is_asking)
        asking = self._asking(rows.part(is_asking)) if is_asking.any() else self._nobody
        self._check_unique(asking.ids, "asks for two actions in one message; an agent gets only one")
        self._check_unique(ended.ids, "ends twice in one message; report each end once")
        self._check_order(rows.ids, is_asking)
        return Part(self, asking, self._ended(ended), None if ended.outcomes is None else _RESULTS[ended.outcomes])

    def _asking(self, rows: _Rows) -> AskingAgents:
        if rows.masks is not None:
            allowed = np.logical_or.reduceat(rows.masks, self._branch_begins, axis=1)
            if not allowed.all():
                row, branch = np.argwhere(~allowed)[0].tolist()
                raise self._fault(
                    f"allowed of agent {rows.ids[row]} allows no choice of branch {branch}; allow at least one"
                )
        return AskingAgents(
            rows.ids, rows.observations, rows.masks, rows.rewards, rows.groups, rows.group_rewards, rows.faulty
        )

    @staticmethod
    def _ended(rows: _Rows) -> EndedAgents:
        interrupted = np.asarray(rows.states == client_pb2.AGENT_STATE_INTERRUPTED)
        return EndedAgents(
            rows.ids, rows.observations, interrupted, rows.rewards, rows.groups, rows.group_rewards, rows.faulty
        )

    def _check_unique(self, ids: NDArray[np.int64], fault: str) -> None:
        if len(ids) > 1:
            found = ids.tolist()
            if len(set(found)) != len(found):
                twice = next(agent for agent in found if found.count(agent) > 1)
                raise self._fault(f"agent {twice} {fault}")

    def _check_order(self, ids: NDArray[np.int64], is_asking: NDArray[np.bool_]) -> None:
        """Checks that an agent that ends and asks ends first."""
        asked = dict(zip(ids[is_asking].tolist(), np.flatnonzero(is_asking).tolist(), strict=True))
        for agent, place in zip(ids[~is_asking].tolist(), np.flatnonzero(~is_asking).tolist(), strict=True):
            if asked.get(agent, place) < place:
                raise self._fault(
                    f"agent {agent} asks before its episode ends; report its end first, then its next episode"
                )

    def _joined(self, parts: Sequence[_Rows]) -> _Rows:
        """Returns the reports of several entries as one."""
        total = sum(len(part.ids) for part in parts)
        if total > MAX_AGENTS:
            raise self._fault(f"a message has {total} agents; at most {MAX_AGENTS} are allowed")

        def column(name: str, default: Any) -> Any:
            given = [getattr(part, name) for part in parts]
            if all(values is None for values in given):
                return None
            return np.concatenate(
                [
                    default(len(part.ids)) if values is None else values
                    for part, values in zip(parts, given, strict=True)
                ]
            )

        return _Rows(
            np.concatenate([part.ids for part in parts]),
            [np.concatenate(values) for values in zip(*(part.observations for part in parts), strict=True)],
            np.concatenate([part.rewards for part in parts]),
            column("states", lambda count: np.zeros(count, np.int64)),
            column("masks", lambda count: np.ones((count, self._mask_size), np.uint8)),
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.group_rewards for part in parts]),
            column("outcomes", lambda count: np.zeros(count, np.int64)),
            column("faulty", lambda count: np.zeros(count, np.bool_)),
        )

    def _rows(self, steps: client_pb2.AgentSteps) -> _Rows:
        agents = steps.agents[:]
        count = len(agents)
        if not 1 <= count <= MAX_AGENTS:
            raise self._fault(f"an entry has {count} agents; 1 to {MAX_AGENTS} are allowed")
        if min(agents) < 0:
            raise self._fault(f"agent {min(agents)} is negative; number agents from 0")
        bad: list[NDArray[np.bool_]] = []
        observations = self._observations(steps, count, bad)
        groups = self._numbers("groups", steps.groups[:], count)
        if groups is not None and groups.min() < 0:
            raise self._fault(f"group {groups.min()} is negative; 0 is no group, and groups begin at 1")
        return _Rows(
            np.array(agents, np.int64),
            observations,
            self._floats("rewards", steps.rewards[:], count, bad),
            self._numbers("states", steps.states[:], count, most=_STATES),
            self._masks(steps, count),
            _NO_GROUPS[:count] if groups is None else groups,
            self._floats("group_rewards", steps.group_rewards[:], count, bad),
            self._numbers("outcomes", steps.outcomes[:], count, most=len(_RESULTS)),
            np.logical_or.reduce(bad) if bad else None,
        )

    def _floats(
        self, name: str, given: Sequence[float], count: int, bad: list[NDArray[np.bool_]]
    ) -> NDArray[np.float32]:
        """Returns a number for each agent; one that is not finite becomes 0, and its agent faulty."""
        if not given:
            return _NO_REWARDS[:count]
        self._check_length(name, len(given), count)
        values = np.array(given, np.float32)
        if not math.isfinite(sum(given)):
            finite = np.isfinite(values)
            values[~finite] = 0
            bad.append(~finite)
        return values

    def _numbers(
        self, name: str, given: Sequence[int], count: int, *, most: int | None = None
    ) -> NDArray[np.int64] | None:
        """Returns a whole number for each agent; None without any."""
        if not given:
            return None
        self._check_length(name, len(given), count)
        values = np.array(given, np.int64)
        if most is not None and not 0 <= values.min() <= values.max() < most:
            wrong = next(value for value in given if not 0 <= value < most)
            raise self._fault(f"{name} has the unknown value {wrong}; update the gateway, or send 0 to {most - 1}")
        return values

    def _masks(self, steps: client_pb2.AgentSteps, count: int) -> NDArray[np.uint8] | None:
        given = steps.allowed[:]
        if not given:
            return None
        if not self._mask_size:
            raise self._fault("allowed is given, but the behavior has no discrete branches; leave it out")
        self._check_length("allowed", len(given), count, self._mask_size)
        return np.array(given, np.uint8).reshape(count, self._mask_size)

    def _check_length(self, name: str, length: int, count: int, each: int = 1) -> None:
        if length != count * each:
            need = (
                f"{count} agents need {count * each}"
                if each == 1
                else f"{count} agents with {each} each need {count * each}"
            )
            raise self._fault(f"{name} has {length} entries, but {need}")

    def _observations(
        self, steps: client_pb2.AgentSteps, count: int, bad: list[NDArray[np.bool_]]
    ) -> list[NDArray[Any]]:
        """Returns one array per observation, [n, *shape]; values that are not finite become 0, and their agents faulty."""
        values = steps.values[:]
        if bool(values) == bool(steps.observations):
            raise self._fault(
                "both values and observations are given; send one of them"
                if values
                else "neither values nor observations are given; send one of them"
            )
        if not values:
            found = self._tensors(steps, count)
        else:
            self._check_length("values", len(values), count, self._size)
            matrix = np.array(values, np.float32).reshape(count, self._size)
            if self._is_plain:
                found = [matrix.reshape(count, *self.spec.observations[0].shape)]
            else:
                found = list(self._columns(matrix))
        return [
            self._usable(seen, bad) if part.dtype.kind == "f" else self._checked(part, seen)
            for part, seen in zip(self.spec.observations, found, strict=True)
        ]

    def _tensors(self, steps: client_pb2.AgentSteps, count: int) -> list[NDArray[Any]]:
        parts = self.spec.observations
        if len(steps.observations) != len(parts):
            raise self._fault(f"{len(steps.observations)} observations are given; the behavior has {len(parts)}")
        found = []
        left = limits.MAX_DECODED_CHUNK_BYTES
        for part, tensor in zip(parts, steps.observations, strict=True):
            try:
                values = decode(tensor, max_bytes=left, what=f"observation {part.name}")
            except MalformedChunk as error:
                raise self._fault(str(error)) from None
            if values.dtype != part.dtype or values.shape != (count, *part.shape):
                raise self._fault(
                    f"observation {part.name} is {values.dtype.name}{list(values.shape)}; "
                    f"{part.dtype.name}{[count, *part.shape]} is needed"
                )
            left -= values.nbytes
            found.append(values)
        return found

    def _columns(self, matrix: NDArray[np.float32]) -> Iterable[NDArray[Any]]:
        """Splits the numbers of all observations, [n, size], into arrays in their dtypes."""
        begin = 0
        for part in self.spec.observations:
            values = matrix[:, begin : begin + part.size].reshape(len(matrix), *part.shape)
            begin += part.size
            if part.dtype == np.float32:
                yield values
            elif part.dtype.kind == "f":
                with np.errstate(over="ignore"):  # beyond float16 they become infinite, and their rows faulty
                    yield values.astype(part.dtype)
            else:
                yield self._whole(part, values)

    def _whole(self, part: ObservationSpec, values: NDArray[np.float32]) -> NDArray[Any]:
        """Returns whole numbers in the dtype of their observation."""
        low, high = (0, 1) if part.dtype.kind == "b" else (np.iinfo(part.dtype).min, np.iinfo(part.dtype).max)
        wide = values.astype(np.float64)
        right = (wide == np.rint(wide)) & (wide >= low) & (wide <= high)
        if not right.all():
            raise self._fault(
                f"observation {part.name} has the value {wide[~right][0]:g}; {part.dtype.name} needs whole numbers from "
                f"{low} to {high}"
            )
        return values.astype(part.dtype)

    def _checked(self, part: ObservationSpec, values: NDArray[Any]) -> NDArray[Any]:
        """Returns categories if all are known: they index a table of the network."""
        if part.kind is ObservationKind.CATEGORICAL:
            wrong = (values < 0) | (values >= np.array(part.categories))
            if wrong.any():
                row, element = np.argwhere(wrong)[0].tolist()
                raise self._fault(
                    f"observation {part.name} has category {values[row, element]} in element {element}; "
                    f"0 to {part.categories[element] - 1} are declared"
                )
        return values

    @staticmethod
    def _usable(values: NDArray[Any], bad: list[NDArray[np.bool_]]) -> NDArray[Any]:
        """Returns observations; rows with values that a learner refuses are marked, and these values are 0."""
        if float(np.abs(values).max()) <= LARGEST_OBSERVATION:  # false for NaN, too
            return values
        right = np.abs(values).astype(np.float64) <= LARGEST_OBSERVATION
        bad.append(~right.reshape(len(values), -1).all(axis=1))
        return np.where(right, values, values.dtype.type(0))

    def _fault(self, what: str) -> BadClientData:
        return BadClientData(f"{self._who}: {what}")


class ClientReader:
    """Reads the messages of one client.

    Args:
        specs: The behaviors that it declared, by name.
    """

    def __init__(self, specs: Mapping[str, BehaviorSpec]) -> None:
        self._specs = specs
        self._forms: dict[str, ClientForm] = {}
        self._by_team: dict[tuple[str, int], ClientForm] = {}

    def read(self, steps: Sequence[client_pb2.AgentSteps]) -> list[Part]:
        """Returns the agents of a message, one part for each behavior id.

        Raises:
            BadClientData: They cannot be used.
        """
        if len(steps) == 1:
            return [self._form(steps[0].behavior).read(steps)]
        entries: dict[ClientForm, list[client_pb2.AgentSteps]] = {}
        for each in steps:
            entries.setdefault(self._form(each.behavior), []).append(each)
        return [form.read(found) for form, found in entries.items()]

    def _form(self, behavior_id: str) -> ClientForm:
        form = self._forms.get(behavior_id)
        if form is not None:
            return form
        name, team = split_behavior_id(behavior_id)
        spec = self._specs.get(name)
        if spec is None:
            raise BadClientData(
                f"behavior {shown(behavior_id)} was not declared in hello, which has {', '.join(self._specs)}; "
                "declare every behavior there"
            )
        if len(self._forms) >= _MOST_IDS:
            raise BadClientData(f"the client has more than {_MOST_IDS} behavior ids; use fewer teams")
        form = self._by_team.get((name, team))  # of the same id in other words: `Name` is `Name?team=0`
        if form is None:
            form = self._by_team[name, team] = ClientForm(behavior_id, spec, team)
        self._forms[behavior_id] = form
        return form


def split_behavior_id(behavior_id: str) -> tuple[str, int]:
    """Returns the name and the team of ``Name`` or ``Name?team=N``.

    Raises:
        BadClientData: The team is not a number.
    """
    name, _, text = behavior_id.partition(_TEAM)
    if name == behavior_id:
        return name, 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MAX_TEAM):
        raise BadClientData(f"behavior {shown(behavior_id)}: its team is not a number from 0 to {MAX_TEAM}")
    return name, int(text)
