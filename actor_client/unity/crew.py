"""The behavior ids of all players of one process: who may act does so in one batch a policy."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog
from rollcast.specs import BehaviorSpec, mismatches
from rollcast.v1 import policy_pb2

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.demos.players import PlayerDemos
from actor_client.policy.actions import ActingPolicy, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.rollout.evaluation import evaluation_noise
from actor_client.unity.acting import Acting
from actor_client.unity.asking import Exchange
from actor_client.unity.batching import act
from actor_client.unity.counts import GatewayCounts
from actor_client.unity.duties import CrewDuties
from actor_client.unity.faults import BadPlayerData
from actor_client.unity.reading import Part
from actor_client.unity.seat import Seat


class Crew:
    """Finds the behavior ids in what players report, and acts for them. In the thread that has the turn.

    Args:
        link: The connection; opened already.
        run_info: What `link.open` answered.
        seats: All players.
        counts: Where batches are counted.
        demos: Takes demonstrations; None records none.
        clock: Monotonic seconds.

    Attributes:
        assignment: What the learner asks for.
    """

    def __init__(
        self,
        link: LearnerLink,
        run_info: RunInfo,
        seats: Sequence[Seat],
        counts: GatewayCounts,
        *,
        demos: PlayerDemos | None,
        clock: Callable[[], float],
    ) -> None:
        self.assignment = link.assignment or run_info.assignment
        self._link = link
        self._run = run_info
        self._seats = seats
        self._counts = counts
        self._demos = demos
        self._clock = clock
        self._members: dict[tuple[str, int], Acting] = {}
        self._noises: dict[tuple[str, bool], Noise] = {}
        self._duties = CrewDuties()
        self._rollout = link.counts
        self._log = structlog.get_logger()

    def __iter__(self) -> Iterator[Acting]:
        return iter(self._members.values())

    @property
    def unrecorded(self) -> bool:
        """Whether there is something to record; from any thread."""
        return any(acting.unrecorded for acting in list(self._members.values()))

    def find(self, part: Part) -> Acting:
        """Returns the behavior id of some agents; a new one is declared.

        Raises:
            BadPlayerData: Another player has it with other observations or actions.
        """
        form = part.form
        key = form.name, form.team
        acting = self._members.get(key)
        if acting is None:
            agents = max(1, len(part.step.decisions.ids))
            acting = self._members[key] = Acting(
                self._link,
                form.spec,
                form.team,
                agents,
                duty=self._duties.of(self.assignment, *key),
                stale=[seat.worker for seat in self._seats if seat.reset_due],
                demos=None if self._demos is None else self._demos.of(form.spec, form.team),
                clock=self._clock,
            )
            self._log.info("behavior_found", behavior=form.behavior_id, agents=agents)
        elif acting.spec != form.spec and (differences := mismatches(acting.spec, form.spec)):
            raise BadPlayerData(
                f"behavior {form.behavior_id} is not what it was with the first player: {'; '.join(differences)}; "
                "give all players of a run the same build"
            )
        return acting

    def drop(self, worker: int, reason: str) -> None:
        """Gives up the open rows of a player.

        Args:
            worker: Which player.
            reason: The word of the books (`discarded{reason}`).
        """
        for acting in self:
            acting.drop(worker, reason)

    def record(self) -> None:
        """Records what agents did since they were answered."""
        for acting in self:
            acting.record()

    def poll(self) -> None:
        """Sends what has waited long enough."""
        for acting in self:
            acting.poll()

    def end(self) -> None:
        """Sends everything: the actor is about to stop."""
        for acting in self:
            acting.end()

    def note_waits(self) -> None:
        """Sends what is closed of those who wait for the learner, and counts the time."""
        stuck = [acting for acting in self if acting.waiting]
        counts, now = self._rollout, self._clock()
        if not stuck:
            counts.waited(now)
            return
        for acting in stuck:
            acting.flush()
        if counts.waiting is None:
            counts.waiting = stuck[0].missing, now

    def assign(self, assignment: policy_pb2.Assignment) -> Iterable[Exchange]:
        """Takes over what the learner asks for anew.

        Returns:
            Exchanges that are to be answered with a reset, now.
        """
        self.assignment = assignment
        self._noises = {key: noise for key, noise in self._noises.items() if not key[1]}
        return self._duties.begin(assignment, self._members, self._seats)

    def follow(self) -> None:
        """Does between two steps what the connection asks for."""
        for acting in self:
            acting.follow()
        self._duties.rest(self)

    def answered(self) -> list[Exchange]:
        """Chooses actions for all who may act, in one run a policy.

        Returns:
            The exchanges that are complete by it.

        Raises:
            PolicyUnusable: A policy failed in an evaluation.
        """
        complete: list[Exchange] = []
        for crew in self._ready().values():
            policy = crew[0].policy
            if policy is None:
                continue
            try:
                complete += self._act(policy, crew)
            except PolicyUnusable as why:
                for acting in crew:
                    acting.refuse(why)
        return complete

    def _act(self, policy: ActingPolicy, crew: Sequence[Acting]) -> list[Exchange]:
        agents = sum(acting.agents_waiting for acting in crew)
        if self._rollout.waiting is not None:
            self._rollout.waited(self._clock())
        complete = act(policy, crew, self._noise(crew[0]))
        self._counts.batch_agents.add(agents)
        self._rollout.env_steps += agents
        return complete

    def _ready(self) -> dict[int, list[Acting]]:
        """Returns who may act, by their policy."""
        ready: dict[int, list[Acting]] = {}
        in_flight: Counter[str] = Counter()
        for acting in self:
            in_flight[acting.spec.name] += acting.in_flight
        for acting in self:
            name = acting.spec.name
            if acting.waiting and acting.may_act(in_flight[name]):
                in_flight[name] += acting.agents_waiting
                ready.setdefault(id(acting.policy), []).append(acting)
        return ready

    def _noise(self, acting: Acting) -> Noise:
        """Returns the random numbers of a behavior, all its teams together."""
        key = acting.spec.name, acting.duty.evaluates
        noise = self._noises.get(key)
        if noise is None:
            make = evaluation_noise if acting.duty.evaluates else _noise
            noise = make(self._run.run_seed, self._run.actor_index, acting.spec, acting.agents_waiting)
            self._noises[key] = noise
        return noise


def _noise(run_seed: int, actor_index: int, spec: BehaviorSpec, agents: int) -> Noise:
    action = spec.action
    return Noise(
        run_seed,
        actor_index,
        agents=agents,
        continuous_size=action.continuous_size,
        logits_size=action.mask_size,
    )
