"""Turns reports of agents into batches for the rollout."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import GameResult
from rollcast.enums import StatAggregation

from actor_client.envs.base import MaskArray, Observations
from actor_client.envs.infos import check_masks, episode_numbers, read_mask
from actor_client.pettingzoo.agent_roles import NO_GROUP, AgentRoles, Form, Seat
from actor_client.pettingzoo.agents import AgentReport, Report, WrongReport
from actor_client.rollout.agents.interface import AskingAgents, EndedAgents, faulty_rows

GroupReward = Literal["own", "sum", "mean"]
"""What becomes of the rewards of agents in groups: their own; or the group's, the sum or the mean over its agents."""
STAT_PREFIX: Final = "Environment/"
RESULT: Final = "result"
"""Number of an info that says how a game ended for an agent: positive if it won, 0 for a draw, negative if it lost."""

Faulty = NDArray[np.bool_] | None
_Common = tuple[NDArray[np.int64], Observations, NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], Faulty]


class Part(NamedTuple):
    """The agents of one behavior id in a report.

    Attributes:
        form: Their behavior id.
        names: Names of the asking agents, in the order of `asking`.
        asking: Agents that ask for actions.
        ended: Agents whose episodes ended.
        stats: Numbers of the infos of ended agents.
        results: Results of their games, a `GameResult` each, int8 [n]; None if no info has a number ``result``.
    """

    form: Form
    names: list[str]
    asking: AskingAgents
    ended: EndedAgents
    stats: list[tuple[str, float, StatAggregation]]
    results: NDArray[np.int8] | None = None


class _Rewarded(NamedTuple):
    report: AgentReport
    reward: float
    group_reward: float


class SharedRewards:
    """Gives the rewards of each agent to all living agents of its group.

    An agent gets the sum since it was last in a message, so agents that act in turns get every reward once.

    Args:
        share: See `GroupReward`; own gives none.
    """

    def __init__(self, share: GroupReward) -> None:
        self._share = share
        self._due: dict[int, dict[str, float]] = {}

    def clear(self) -> None:
        """Begins with no agents, because an episode begins."""
        self._due = {}

    def join(self, agent: str, group: int) -> None:
        """Adds an agent to its group, unless it is known."""
        if group != NO_GROUP and self._share != "own":
            self._due.setdefault(group, {}).setdefault(agent, 0.0)

    def divide(self, reports: Iterable[tuple[AgentReport, int]]) -> dict[str, _Rewarded]:
        """Returns the reports with own rewards and group rewards, by agent.

        Args:
            reports: All reports of one message, and the group of each agent.
        """
        reports = list(reports)
        for report, group in reports:
            self.join(report.agent, group)
        for report, group in reports:
            due = self._due.get(group)
            if due is not None:
                part = report.reward / len(due) if self._share == "mean" else report.reward
                for agent in due:
                    due[agent] += part
        divided = {}
        for report, group in reports:
            due = self._due.get(group)
            if due is None:
                divided[report.agent] = _Rewarded(report, report.reward, 0.0)
            else:
                divided[report.agent] = _Rewarded(report, 0.0, due[report.agent])
                due[report.agent] = 0.0
        return divided

    def leave(self, agent: str, group: int) -> None:
        """Removes an agent whose episode has ended."""
        if (due := self._due.get(group)) is not None:
            due.pop(agent, None)


class Reader:
    """Reads the reports of one environment.

    Args:
        roles: The seats of agents.
        environment: The PettingZoo environment.
        share: See `GroupReward`.
    """

    def __init__(self, roles: AgentRoles, environment: Any, share: GroupReward) -> None:
        self._roles = roles
        self._environment = environment
        self._numbers: dict[str, int] = {}
        self._seats: dict[str, Seat] = {}
        self._shared = SharedRewards(share)
        self._asking: dict[Form, tuple[list[str], AskingAgents]] = {}
        self._ended: dict[Form, EndedAgents] = {}
        self._empty: dict[Form, tuple[AskingAgents, EndedAgents]] = {}
        self._stats: dict[Form, list[tuple[str, float, StatAggregation]]] = {}
        self._joined = 0
        self._results: dict[Form, NDArray[np.int8] | None] = {}
        for agent in getattr(environment, "possible_agents", None) or ():
            self._number(agent)
            self.seat(agent)
        self._possible = frozenset(self._numbers)

    def seat(self, agent: str) -> Seat:
        """Returns the seat of an agent; see `AgentRoles.seat`."""
        seat = self._seats.get(agent)
        if seat is None:
            seat = self._seats[agent] = self._roles.seat(self._environment, agent)
        return seat

    @property
    def forms(self) -> Counter[Form]:
        """The numbers of possible agents by behavior id; empty if the environment does not name its agents."""
        return Counter(self.seat(agent).form for agent in self._possible)

    def begin(self) -> None:
        """Notes that an episode of the environment begins."""
        self._shared.clear()
        for agent in self._environment.agents:
            self._shared.join(agent, self.seat(agent).group)

    def take(self, report: Report) -> None:
        """Takes a report into the present message. Observations are copied, because an environment may reuse them.

        A message has at most two reports: of the step that ends an episode, and of the reset after it.

        Raises:
            WrongReport: A mask is wrong.
            ValueError: An observation has another shape than its space.
        """
        everyone = [*report.ended, *report.asking]
        divided = self._shared.divide((each, self.seat(each.agent).group) for each in everyone)
        for form, ended in self._by_form(divided[each.agent] for each in report.ended).items():
            self._ended[form] = self._ended_batch(form, ended)
            self._stats[form] = [stat for each in ended for stat in _stats(each.report)]
            self._results[form] = _results([each.report for each in ended])
        for form, asking in self._by_form(divided[each.agent] for each in report.asking).items():
            self._asking[form] = [each.report.agent for each in asking], self._asking_batch(form, asking)
        for each in report.ended:
            self._shared.leave(each.agent, self.seat(each.agent).group)
            if each.agent not in self._possible:  # each agent that joins may have another name
                self._numbers.pop(each.agent, None)
                self._seats.pop(each.agent, None)

    def parts(self) -> list[Part]:
        """Returns the agents of the present message by behavior id, and begins another message."""
        parts = []
        for form in dict.fromkeys((*self._ended, *self._asking)):
            no_asking, no_ended = self._nothing(form)
            names, asking = self._asking.get(form) or ([], no_asking)
            ended = self._ended.get(form) or no_ended
            parts.append(Part(form, names, asking, ended, self._stats.get(form, []), self._results.get(form)))
        self._asking, self._ended, self._stats, self._results = {}, {}, {}, {}
        return parts

    def _nothing(self, form: Form) -> tuple[AskingAgents, EndedAgents]:
        """Returns batches without agents, which are shared because most messages have one."""
        found = self._empty.get(form)
        if found is None:
            found = self._empty[form] = self._asking_batch(form, ()), self._ended_batch(form, ())
        return found

    def _by_form(self, reports: Iterable[_Rewarded]) -> dict[Form, list[_Rewarded]]:
        found: dict[Form, list[_Rewarded]] = {}
        for each in reports:
            found.setdefault(self.seat(each.report.agent).form, []).append(each)
        return found

    def _number(self, agent: str) -> int:
        """Returns the number of an agent in this environment, unique among its agents."""
        number = self._numbers.get(agent)
        if number is None:
            number = self._numbers[agent] = self._joined
            self._joined += 1
        return number

    def _asking_batch(self, form: Form, reports: Sequence[_Rewarded]) -> AskingAgents:
        ids, observations, rewards, groups, group_rewards, faulty = self._common(form, reports)
        return AskingAgents(
            ids, observations, _masks(form, [each.report for each in reports]), rewards, groups, group_rewards, faulty
        )

    def _ended_batch(self, form: Form, reports: Sequence[_Rewarded]) -> EndedAgents:
        ids, observations, rewards, groups, group_rewards, faulty = self._common(form, reports)
        interrupted = np.array([each.report.truncated and not each.report.terminated for each in reports], np.bool_)
        return EndedAgents(ids, observations, interrupted, rewards, groups, group_rewards, faulty)

    def _common(self, form: Form, reports: Sequence[_Rewarded]) -> _Common:
        """Returns the fields that both batches share."""
        names = [each.report.agent for each in reports]
        observations = form.encode([each.report.observation for each in reports])
        with np.errstate(over="ignore"):  # a reward beyond float32 becomes infinite, and its row faulty
            rewards = np.array([each.reward for each in reports], np.float32)
            group_rewards = np.array([each.group_reward for each in reports], np.float32)
        return (
            np.array([self._number(name) for name in names], np.int64),
            observations,
            rewards,
            np.array([self.seat(name).group for name in names], np.int64),
            group_rewards,
            faulty_rows(*observations, rewards, group_rewards),
        )


def _masks(form: Form, reports: Sequence[AgentReport]) -> MaskArray | None:
    """Returns the masks of asking agents, uint8 [n, sum of branches]; None if none has one.

    Raises:
        WrongReport: A mask does not fit the actions, or allows no choice.
    """
    branches = form.spec.action.discrete_branches
    if not branches:
        return None
    found: list[MaskArray | None] = []
    for report in reports:
        given = report.observation if form.masks_in_observations else report.info
        try:
            mask = read_mask(given, branches)
            if mask is not None:
                check_masks(mask[np.newaxis], branches)
        except ValueError as error:
            raise WrongReport(f"agent {report.agent}: {error}") from None
        found.append(mask)
    if all(mask is None for mask in found):
        return None
    return np.stack([form.all_allowed if mask is None else mask for mask in found])


def _stats(report: AgentReport) -> list[tuple[str, float, StatAggregation]]:
    """Returns the numbers of an ended agent's info, whose means over agents become statistics."""
    return [
        (f"{STAT_PREFIX}{name}", value, StatAggregation.AVERAGE) for name, value in episode_numbers(report.info).items()
    ]


def _results(reports: Sequence[AgentReport]) -> NDArray[np.int8] | None:
    """Returns the results of ended agents' games; None if no info has one."""
    told = [episode_numbers(report.info).get(RESULT, math.nan) for report in reports]
    if all(map(math.isnan, told)):
        return None
    signs = [GameResult.UNKNOWN if math.isnan(value) else (value > 0) - (value < 0) for value in told]
    return np.array(signs, np.int8)
