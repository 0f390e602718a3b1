"""Plays the games of a table: reports their agents, acts in one batch per policy, and takes the next ply."""

import time
from collections.abc import Callable
from typing import Final

import structlog
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.boards.table import TEAMS, Exchange, Table, TeamReport
from actor_client.connection.link import LearnerLink
from actor_client.counts import AgentCounts
from actor_client.demos.players import PlayerDemos
from actor_client.heartbeat import Heartbeat
from actor_client.rollout.agents.interface import AgentRequest
from actor_client.rollout.agents.loop import AgentLoop
from actor_client.rollout.agents.scripts import ScriptedOpponent

WAIT_SECONDS: Final = 0.05
"""Longest single wait, and the age at which closed segments are sent."""

_log = structlog.get_logger(__name__)


class BoardLoop:
    """Plays until the link stops. One thread calls it.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        table: The games.
        spec: What the players are declared as.
        script: Plays opponents; None if their policies do.
        demos: Records demonstrations; None records none.
        heartbeat: Updated in each round.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        link: LearnerLink,
        assignment: policy_pb2.Assignment,
        table: Table,
        spec: BehaviorSpec,
        *,
        script: ScriptedOpponent | None = None,
        demos: PlayerDemos | None = None,
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._table = table
        self._spec = spec
        self._heartbeat = heartbeat or Heartbeat()
        self._clock = clock
        self._rollout = link.counts
        self._loop = AgentLoop(
            link,
            assignment,
            [table],
            AgentCounts(),
            script=script,
            observe=None if demos is None else demos.of,
            clock=clock,
        )
        table.assign(self._loop.assignment)
        self._poll_due = clock()

    def run(self) -> None:
        """Plays until the link stops; then sends the recorded data. Called once.

        Raises:
            PolicyUnusable: A policy failed on the observations, and no other policy is available.
        """
        for team in range(TEAMS):  # a match needs both
            _log.info("acting", behavior=self._behavior_id(team), agents=self._table.games)
            self._loop.add(self._spec, team, self._table.games)
        try:
            while not self._link.stopping:
                self._heartbeat.beat()
                self._loop.follow()
                self._loop.act()
                if self._table.is_ready:
                    self._advance()
                else:
                    self._loop.note_waits()
                    self._link.wait(WAIT_SECONDS)
                self._poll()
        finally:
            self._loop.end()

    def _behavior_id(self, team: int) -> str:
        return f"{self._spec.name}?team={team}"

    def _advance(self) -> None:
        """Plays one ply of all games, records what was done before it, and reports the agents."""
        now = self._clock()
        reports = self._table.advance()
        self._rollout.env_step_seconds.add(self._clock() - now)
        self._loop.record()
        named = [(self._behavior_id(report.team), report) for report in reports]
        exchange = Exchange(self._table, named)
        for behavior_id, report in named:
            self._report(exchange, behavior_id, report)

    def _report(self, exchange: Exchange, behavior_id: str, report: TeamReport) -> None:
        runner = self._loop.find(self._spec.name, report.team)
        assert runner is not None  # noqa: S101 - for the type checker
        runner.add(
            AgentRequest(exchange, behavior_id, report.asking, report.ended, results=report.results, games=report.games)
        )
        if report.stats:
            runner.add_stats(self._table.worker, report.stats)
        self._rollout.ended([SegmentEnd.TERMINATED] * len(report.ended.ids))

    def _poll(self) -> None:
        """Sends data that has waited long enough."""
        now = self._clock()
        if now >= self._poll_due:
            self._poll_due = now + WAIT_SECONDS
            self._loop.poll()
