"""Agents that act as opponents: they play with the policies of their matches, and only their episodes are reported."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import ActingPolicy, Actions, FloatArray, merged
from actor_client.policy.noise import Noise
from actor_client.rollout.agents.interface import AgentRequest, EndedAgents, joined
from actor_client.rollout.agents.players import AgentEpisode, PlayedRound
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.assignment import Seat
from actor_client.rollout.episodes import FinishedGame
from actor_client.rollout.evaluation import EpisodeSender, Quota
from actor_client.rollout.link import BehaviorLink

REPORT_SECONDS: Final = 1.0
"""Longest time until the learner is told of opponents' steps, in seconds."""


class OpponentRound(PlayedRound):
    """Plays matches with the agents of one behavior id, in any number of environments; has a recorder's interface.

    An agent plays an episode to its end with the policy of the match in which it began. Its steps are ghost steps: they
    are counted, and need no credit. Where a match limits its episodes, the first to begin are reported, and no step is
    counted: nothing of a tournament or an evaluation is in the books.

    Args:
        spec: The behavior's spec.
        link: The link that takes records and provides policies.
        seat: The part in the present match.
        newest: The newest policy; None if there is none yet.
        script: Acts in the matches that name no policy, in place of the newest; None for none.
        clock: Monotonic seconds.

    Attributes:
        seat: The part in the present match, for episodes that begin now.
        newest: The newest policy; None before the first.
        fault: Why the policy of the present match cannot act; empty if it can.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        link: BehaviorLink,
        seat: Seat,
        newest: ActingPolicy | None = None,
        *,
        script: ScriptedOpponent | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.seat = seat
        self.newest = newest
        self._newest_of_match = newest  # when the match began: it keeps its weights, as a snapshot does
        self.fault = ""
        self._spec = spec
        self._link = link
        self._script = script
        self._clock = clock
        self._quota = Quota(seat.episodes)
        self._sender = EpisodeSender(spec, link, None, clock)
        self._seen = 0
        self._counted = 0
        self._reported = 0
        self._report_due = 0.0

    def assign(self, seat: Seat) -> None:
        """Begins another match, in which episodes take part that have no action yet.

        Where it limits its episodes, these are reset and do not count: their other side may have begun before.
        """
        self.seat, self.fault = seat, ""
        self._newest_of_match = self.newest
        self._quota = Quota(seat.episodes)
        for player in self._players.all():
            if not player.has_acted:
                player.seat, player.policy = seat, None
            player.counts &= not seat.episodes

    def follow(self, newest: ActingPolicy) -> None:
        """Notes the newest policy; after a restart of the learner, drops records of the time before."""
        if self.newest is not None and self.newest.generation != newest.generation:
            self.forget()
            self._newest_of_match = None
        self.newest = newest
        self._newest_of_match = self._newest_of_match or newest

    def forget(self) -> None:
        """Drops waiting records, which belong to another session or start of the learner."""
        self._sender.forget()

    def finish(
        self,
        env: int,
        batch: EndedAgents,
        results: NDArray[np.int8] | None = None,
        games: Sequence[FinishedGame] | None = None,
    ) -> None:
        """Ends episodes; unknown agents are ignored."""
        of_agents = {} if games is None else dict(zip(batch.ids.tolist(), games, strict=True))
        self._players.finish(env, batch, results, partial(self._end, of_agents))
        self.poll()

    def drop_env(self, env: int, reason: str) -> None:
        """Forgets the agents of an environment that was lost or reset."""
        del reason
        self._quota.lose(sum(player.counts for player in self._players.drop_env(env)))

    def poll(self) -> None:
        """Counts steps, and sends records or the number of ghost steps if they are due."""
        self._count()
        if self.newest is None:
            return
        if self._quota.is_done:
            self._sender.flush(self.newest.generation, len(self._players))
        else:
            self._sender.poll(self.newest.generation, len(self._players))
        now = self._clock()
        if self._counted > self._reported and now >= self._report_due:
            self._report(self.newest)
            self._report_due = now + REPORT_SECONDS

    def flush(self) -> None:
        """Sends all records and the number of ghost steps."""
        if self.newest is None:
            return
        self._sender.flush(self.newest.generation, len(self._players))
        if self._counted > self._reported:
            self._report(self.newest)

    def choose(self, requests: Sequence[AgentRequest], noise: Noise) -> Actions | None:
        """Returns the actions of asking agents; None until the policies of all their matches are available.

        Args:
            requests: The asking agents, n together; already observed.
            noise: Source of random numbers.

        Raises:
            PolicyUnusable: A policy fails on the observations.
            ActorError: The script failed.
        """
        observations, masks = joined([request.asking for request in requests])
        players = [
            self._players.get(request.worker, identity)
            for request in requests
            for identity in request.asking.ids.tolist()
        ]
        scripted: list[int] = []
        rows: dict[int, tuple[ActingPolicy, list[int]]] = {}
        for row, player in enumerate(players):
            if self._script is not None and (player.seat or self.seat).policy is None:
                scripted.append(row)
                continue
            policy = self._policy(player)
            if policy is None:
                return None
            rows.setdefault(id(policy), (policy, []))[1].append(row)
        parts = []
        if self._script is not None and scripted:
            seen = [values[scripted] for values in observations], None if masks is None else masks[scripted]
            parts.append((scripted, self._script.act(self._spec, *seen)))
        for policy, chosen in rows.values():
            mine = [players[row] for row in chosen]
            actions = policy.act(
                [values[chosen] for values in observations],
                None if masks is None else masks[chosen],
                noise,
                _memory(policy, mine),
            )
            _remember(policy, mine, actions.memory_out)
            parts.append((chosen, actions._replace(memory_in=None, memory_out=None)))
        return merged(parts)

    def _policy(self, player: AgentEpisode) -> ActingPolicy | None:
        """Returns what acts for an agent: the policy of its match, at first uniformly; None until it is available."""
        seat = player.seat or self.seat
        if player.policy is None:
            player.policy = self._newest_of_match if seat.policy is None else self._link.opponent(seat.policy)
        if player.policy is None:
            return None
        if player.steps < seat.random_steps:
            return player.policy.uniform()
        return player.policy.greedy() if seat.deterministic else player.policy

    def _begin(self, env: int, identity: int, episode: int, settings_revision: int) -> AgentEpisode:
        counts, version = self._quota.begin(), self._version(self.seat)
        return AgentEpisode(env, identity, episode, settings_revision, version, counts=counts, seat=self.seat)

    def _end(self, games: Mapping[int, FinishedGame], player: AgentEpisode, end: SegmentEnd, result: int) -> None:
        version = self._version(player.seat or self.seat) if player.policy is None else player.policy.version
        record = player.record(end, version, result)
        if not player.counts:
            return
        if player.steps and player.is_usable and record.is_finite:
            self._quota.end()
            self._sender.add(record)
            if player.seat is not None and player.seat.episodes and player.identity in games:
                self._sender.show(games[player.identity], player.seat.match)
        else:
            self._quota.lose()

    def _version(self, seat: Seat) -> int:
        if seat.policy is not None:
            return seat.policy.version
        return 0 if self._newest_of_match is None else self._newest_of_match.version

    def _count(self) -> None:
        steps = self._players.steps - self._seen
        self._seen += steps
        if steps and not self.seat.episodes:
            self._counted += steps
            self._link.books.ghost(steps)

    def _report(self, newest: ActingPolicy) -> None:
        """Sends a chunk that holds nothing but the counters."""
        link = self._link
        link.books.seal(0)
        link.send(
            Chunk(
                generation=newest.generation,
                behavior_index=link.behavior_index,
                team=link.team,
                agents=len(self._players),
            )
        )
        self._reported = self._counted


def _memory(policy: ActingPolicy, players: Sequence[AgentEpisode]) -> FloatArray | None:
    """Returns the memories of agents before a step, float32 [n, m]; None for a policy without memory."""
    size = policy.memory.size
    if not size:
        return None
    memory = np.zeros((len(players), size), np.float32)
    for row, player in enumerate(players):
        known = player.memory if player.memory_of == policy.generation else None
        if known is not None and len(known) == size:
            memory[row] = known
    return memory


def _remember(policy: ActingPolicy, players: Sequence[AgentEpisode], memory: FloatArray | None) -> None:
    if memory is None:
        return
    for row, player in zip(memory, players, strict=True):
        player.memory, player.memory_of = row.copy(), policy.generation
