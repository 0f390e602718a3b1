"""Steps all players: what they report is recorded, acted on in one batch a policy, and answered.

A round takes what players have sent since the last one, follows the learner, and answers whom it may. Players that
wait for a policy, for credit or for the end of a hold are answered by a later round, and the others do not wait for
them. What happened is recorded while the players go on.

One thread at a time has the turn, and it alone touches the link, recorders and policies. The thread of a player's call
takes the turn itself if it is free: handing over to another thread and back would take as long as the policy does. Who
finds it taken leaves the post: the gateway's own thread then answers all that came meanwhile, in one batch.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import structlog
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec, mismatches
from rollcast.v1 import session_pb2

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.demos.players import PlayerDemos
from actor_client.heartbeat import Heartbeat
from actor_client.policy.actions import ActingPolicy
from actor_client.policy.noise import Noise
from actor_client.rollout.evaluation import evaluation_noise
from actor_client.unity import handshake
from actor_client.unity.acting import Acting
from actor_client.unity.asking import Asking, Exchange
from actor_client.unity.batching import act
from actor_client.unity.channels.hub import SideChannels
from actor_client.unity.conversation import Conversation
from actor_client.unity.counts import GatewayCounts
from actor_client.unity.duties import CrewDuties
from actor_client.unity.faults import BadPlayerData
from actor_client.unity.mailbox import Kind, Mailbox, Post
from actor_client.unity.reading import Part, PlayerReader, PlayerStep
from actor_client.unity.seat import Seat
from actor_client.unity.seeds import player_seed

LOST: Final = "env_error"
"""What the books say of open rows of a player that failed or left."""
RESET: Final = "reset"
"""What they say of those of a player that is reset."""
WAIT_SECONDS: Final = 0.05
"""How long one wait lasts at most: closed segments that wait for company are sent when they are this old."""
SEND_SECONDS: Final = 0.0002
"""Recording begins so much later than an answer is given: both are Python, and the answer's way out comes first."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What players are told at their beginning.

    Attributes:
        engine: Settings of the game engine.
        num_areas: How often a player repeats its training area.
    """

    engine: session_pb2.EngineSettings
    num_areas: int = 1


class Gateway:
    """Serves all players of one process until the link stops.

    Args:
        link: The connection; opened already.
        run_info: What `link.open` answered.
        mailbox: Where the conversations put what players say.
        conversations: One a player, workers counted from 0.
        settings: What players are told.
        channels: Makes the side channels of a worker.
        demos: Takes demonstrations; None records none.
        heartbeat: Beaten with each round.
        clock: Monotonic seconds.

    Attributes:
        counts: What is counted of all players.
    """

    def __init__(
        self,
        link: LearnerLink,
        run_info: RunInfo,
        mailbox: Mailbox,
        conversations: Sequence[Conversation],
        settings: GatewaySettings,
        *,
        channels: Callable[[int], SideChannels],
        demos: PlayerDemos | None = None,
        heartbeat: Heartbeat | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._run = run_info
        self._mailbox = mailbox
        self._conversations = tuple(conversations)
        self._settings = settings
        self._demos = demos
        self._heartbeat = heartbeat or Heartbeat()
        self.counts = GatewayCounts()
        self._clock = clock
        self._seats = [Seat(conversation.worker, channels(conversation.worker)) for conversation in conversations]
        self._crew: dict[tuple[str, int], Acting] = {}
        self._noises: dict[tuple[str, bool], Noise] = {}
        self._duties = CrewDuties()
        self._assignment = link.assignment or run_info.assignment
        self._rollout = link.counts
        self._log = structlog.get_logger()
        self._turn = threading.Lock()
        self._poll_due = clock()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Steps until the link stops; then sends what is recorded. Called once.

        Raises:
            PolicyUnusable: A policy failed on what players show.
        """
        self._mailbox.ring = self._link.wake
        self._mailbox.serve = self._serve
        try:
            while not self._link.stopping:
                self._heartbeat.beat()
                with self._turn:
                    self._check()
                    self._round()
                self._rest()
            with self._turn:
                self._mailbox.serve = self._link.wake
                self._check()
                for acting in self._crew.values():
                    acting.end()
        finally:
            self._mailbox.serve = self._link.wake
            for conversation in self._conversations:
                conversation.close()

    def _serve(self) -> None:
        """Does a round in the thread of a player's call, unless another thread has the turn; that one comes back."""
        if self._turn.acquire(blocking=False):
            try:
                if self._failure is None:
                    self._round()
            except BaseException as error:  # noqa: BLE001 - raised in the gateway's own thread
                self._failure = error
            finally:
                self._turn.release()
        self._link.wake()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def player_lost(self, worker: int, reason: str = LOST) -> None:
        """Gives up the open rows of a player whose process has gone; from any thread.

        Args:
            worker: Which player.
            reason: The word of the books (`discarded{reason}`).
        """
        self._mailbox.put(Post(Kind.LEFT, self._conversations[worker], reason))

    def request_reset(self, worker: int | None = None) -> None:
        """Answers the next exchange of a player, or of all, with a reset; from any thread."""
        chosen = self._conversations if worker is None else (self._conversations[worker],)
        for conversation in chosen:
            self._mailbox.put(Post(Kind.RESET, conversation))

    def _round(self) -> None:
        """Takes what came, and answers whom it may.

        Raises:
            PolicyUnusable: A policy failed.
        """
        if not self._mailbox.empty:
            self._record()
            for post in self._mailbox.take():
                self._take(post)
        self._follow()
        for complete in self._answered():
            self._finish(complete)

    def _rest(self) -> None:
        """Records, and waits until something comes or changes."""
        if any(acting.unrecorded for acting in list(self._crew.values())):
            if self._mailbox.empty:
                self._link.wait(SEND_SECONDS)
            with self._turn:
                self._record()
            return
        with self._turn:
            self._note_waits()
        if self._mailbox.empty:
            self._link.wait(WAIT_SECONDS)
        now = self._clock()
        if now >= self._poll_due:
            self._poll_due = now + WAIT_SECONDS
            with self._turn:
                for acting in self._crew.values():
                    acting.poll()

    def _record(self) -> None:
        for acting in self._crew.values():
            acting.record()

    def _note_waits(self) -> None:
        """Sends what is closed of those who wait for the learner, and counts the time."""
        stuck = [acting for acting in self._crew.values() if acting.waiting]
        counts, now = self._rollout, self._clock()
        if not stuck:
            counts.waited(now)
            return
        for acting in stuck:
            acting.flush()
        if counts.waiting is None:
            counts.waiting = stuck[0].missing, now

    def _take(self, post: Post) -> None:
        seat = self._seats[post.conversation.worker]
        if post.kind is Kind.HELLO:
            self._greet(post, seat)
        elif post.kind is Kind.READY:
            seat.begin(self._settings.engine, self._assignment, self._run.run_seed)
            post.answer(handshake.reset(seat.take()))
        elif post.kind is Kind.STEP:
            self._step(post, seat, post.content)
        elif post.kind is Kind.LEFT:
            seat.leave()
            self._drop(seat, post.content or LOST)
        elif post.kind is Kind.RESET:
            seat.reset_due = seat.is_running

    def _greet(self, post: Post, seat: Seat) -> None:
        seat.leave()
        self._drop(seat, LOST)
        hello = post.content
        post.conversation.reader = PlayerReader(seat.worker, hello.package_version)
        seed = player_seed(self._run.run_seed, self._run.actor_index, seat.worker)
        self._log.info(
            "player_connected",
            worker=seat.worker,
            package_version=hello.package_version[:40],
            api_version=hello.communication_version[:40],
            seed=seed,
        )
        post.answer(handshake.greeting(hello, seed, self._settings.num_areas))

    def _step(self, post: Post, seat: Seat, step: PlayerStep) -> None:
        if post.is_answered:
            return
        exchange = Exchange(post, seat)
        try:
            found = [(self._acting(part), Asking(exchange, part)) for part in step.parts]
        except BadPlayerData as error:
            post.conversation.refuse(str(error))
            return
        exchange.open_parts = sum(1 for _, asking in found if asking.agents)
        for acting, asking in found:
            acting.add(asking)
        self._count(step)
        stats = seat.channels.receive(step.side_channel)
        if stats:
            for acting in [acting for acting, _ in found] or list(self._crew.values()):
                acting.add_stats(seat.worker, stats)
        if not exchange.open_parts or seat.reset_due:
            self._finish(exchange)

    def _count(self, step: PlayerStep) -> None:
        for part in step.parts:
            decisions, terminals, _ = part.step
            if len(terminals.ids):
                self._rollout.ended(
                    np.where(terminals.interrupted, SegmentEnd.TRUNCATED, SegmentEnd.TERMINATED).tolist()
                )
            for faulty in (decisions.faulty, terminals.faulty):
                if faulty is not None:
                    self.counts.faulty_agents += int(faulty.sum())

    def _finish(self, exchange: Exchange) -> None:
        """Answers an exchange."""
        if exchange.seat.reset_due:
            self._drop(exchange.seat, RESET)
            self.counts.resets += 1
            exchange.answer_reset()
        else:
            exchange.answer()

    def _acting(self, part: Part) -> Acting:
        """Returns the behavior id of some agents; a new one is declared.

        Raises:
            BadPlayerData: Another player has it with other observations or actions.
        """
        form = part.form
        key = form.name, form.team
        acting = self._crew.get(key)
        if acting is None:
            agents = max(1, len(part.step.decisions.ids))
            acting = self._crew[key] = Acting(
                self._link,
                form.spec,
                form.team,
                agents,
                duty=self._duties.of(self._assignment, *key),
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

    def _drop(self, seat: Seat, reason: str) -> None:
        for acting in self._crew.values():
            acting.drop(seat.worker, reason)

    def _follow(self) -> None:
        """Does between two steps what the learner asks for."""
        assignment = self._link.assignment
        if assignment is not None and assignment is not self._assignment:
            self._assignment = assignment
            for seat in self._seats:
                seat.assign(assignment)
            self._noises = {key: noise for key, noise in self._noises.items() if not key[1]}
            for exchange in self._duties.begin(assignment, self._crew, self._seats):
                self._finish(exchange)
        for acting in self._crew.values():
            acting.follow()
        self._duties.rest(self._crew.values())

    def _answered(self) -> list[Exchange]:
        """Chooses actions for all who may act, in one run a policy.

        Returns:
            The exchanges that are complete by it.

        Raises:
            PolicyUnusable: A policy failed.
        """
        complete: list[Exchange] = []
        for crew in self._ready().values():
            policy = crew[0].policy
            if policy is not None:
                complete += self._act(policy, crew)
        return complete

    def _act(self, policy: ActingPolicy, crew: Sequence[Acting]) -> list[Exchange]:
        agents = sum(acting.agents_waiting for acting in crew)
        self.counts.batch_agents.add(agents)
        self._rollout.env_steps += agents
        if self._rollout.waiting is not None:
            self._rollout.waited(self._clock())
        return act(policy, crew, self._noise(crew[0]))

    def _ready(self) -> dict[int, list[Acting]]:
        """Returns who may act, by their policy."""
        ready: dict[int, list[Acting]] = {}
        in_flight: Counter[str] = Counter()
        for acting in self._crew.values():
            in_flight[acting.spec.name] += acting.in_flight
        for acting in self._crew.values():
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
