"""Steps all players: records their reports, acts in one batch per policy, and answers them.

A round takes the messages since the last round, follows the learner, and answers players. Players that wait for a
policy, for credit or for the end of a hold are answered in a later round; the others do not wait for them. Steps are
recorded while the players simulate.

One thread at a time has the turn, and only it uses the link, recorders and policies. The thread of a player's call
takes the turn itself if it is free, because switching to another thread and back takes as long as the policy. If the
turn is taken, the call leaves its post, and the gateway's own thread then answers all such posts in one batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import structlog
from rollcast.enums import SegmentEnd
from rollcast.specs import mismatches
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto, UnityRLInputProto
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.counts import AgentCounts
from actor_client.demos.players import PlayerDemos
from actor_client.envs.seeds import player_seed
from actor_client.heartbeat import Heartbeat
from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AgentRequest
from actor_client.rollout.agents.loop import AgentLoop
from actor_client.rollout.agents.runner import BehaviorRunner
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.unity import replies
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.conversation import Conversation
from actor_client.unity.mailbox import BadPlayerData, Kind, Mailbox, Post
from actor_client.unity.steps import Part, PlayerReader, PlayerStep

LOST: Final = "env_error"
"""Reason in the books for open rows of a player that failed or left."""
WAIT_SECONDS: Final = 0.05
"""Longest single wait, and the age at which closed segments are sent."""
SEND_SECONDS: Final = 0.0002
"""Delay between an answer and the start of recording: both run in Python, and sending the answer comes first."""


class Gateway:
    """Serves all players of one process until the link stops.

    Args:
        link: The connection; opened already.
        run_info: The answer of `link.open`.
        mailbox: The mailbox into which the conversations put messages.
        conversations: One per player, workers counted from 0.
        channels: Makes the side channels of a worker.
        script: Plays opponents; None if their policies do.
        demos: Records demonstrations; None records none.
        heartbeat: Updated in each round.

    Attributes:
        counts: Counts over all players.
    """

    def __init__(
        self,
        link: LearnerLink,
        run_info: RunInfo,
        mailbox: Mailbox,
        conversations: Sequence[Conversation],
        *,
        channels: Callable[[int], SideChannels],
        script: ScriptedOpponent | None = None,
        demos: PlayerDemos | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._link = link
        self._run = run_info
        self._mailbox = mailbox
        self._conversations = tuple(conversations)
        self._heartbeat = heartbeat or Heartbeat()
        self.counts = AgentCounts()
        self._players = [
            PlayerState(conversation.worker, channels(conversation.worker)) for conversation in conversations
        ]
        self._loop = AgentLoop(
            link,
            run_info.assignment,
            self._players,
            self.counts,
            script=script,
            observe=None if demos is None else demos.of,
            clock=time.monotonic,
        )
        self._rollout = link.counts
        self._log = structlog.get_logger()
        self._turn = threading.Lock()
        self._poll_due = time.monotonic()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Steps until the link stops; then sends the recorded data. Called once.

        Raises:
            PolicyUnusable: A policy failed on the players' observations, and no other policy is available.
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
                self._loop.end()
        finally:
            self._mailbox.serve = self._link.wake
            for conversation in self._conversations:
                conversation.close()

    def _serve(self) -> None:
        """Runs a round in the thread of a player's call, unless another thread has the turn and will take the post."""
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

    def player_lost(self, worker: int, why: str) -> None:
        """Discards the open rows of a player whose process has gone, and reports it; called from a single thread.

        Args:
            worker: The player's number.
            why: The fault, worded to follow `player N `.
        """
        self._rollout.env_failed(f"player {worker} {why}")
        self._mailbox.put(Post(Kind.LEFT, worker))

    def _round(self) -> None:
        """Takes new messages and answers players.

        Raises:
            PolicyUnusable: A policy failed.
        """
        if not self._mailbox.empty:
            self._loop.record()
            for post in self._mailbox.take():
                self._take(post)
        self._loop.follow()
        self._loop.act()

    def _rest(self) -> None:
        """Records, and waits for a message or a change of the link."""
        if self._loop.unrecorded:
            if self._mailbox.empty:
                self._link.wait(SEND_SECONDS)
            with self._turn:
                self._loop.record()
            return
        with self._turn:
            self._loop.note_waits()
        if self._mailbox.empty:
            self._link.wait(WAIT_SECONDS)
        now = time.monotonic()
        if now >= self._poll_due:
            self._poll_due = now + WAIT_SECONDS
            with self._turn:
                self._loop.poll()

    def _take(self, post: Post) -> None:
        player = self._players[post.worker]
        if post.kind is Kind.HELLO:
            self._greet(post, player)
        elif post.kind is Kind.READY:
            player.begin(self._run.engine_settings, self._loop.assignment, self._run.run_seed)
            post.answer(replies.reset(player.take()))
        elif post.kind is Kind.STEP:
            self._step(post, player, post.content)
        elif post.kind is Kind.LEFT:
            self._drop(player)

    def _drop(self, player: PlayerState) -> None:
        """Discards a player's open rows, and warns of the lost steps."""
        player.leave()
        before = self._discarded_steps()
        self._loop.drop(player.worker, LOST)
        if steps := self._discarded_steps() - before:
            self._rollout.env_discarded_steps += steps
            self._log.warning("steps_discarded", worker=player.worker, steps=steps, reason=LOST)

    def _discarded_steps(self) -> int:
        return sum(books.discarded.get(LOST, 0) for books in self._link.books().values())

    def _greet(self, post: Post, player: PlayerState) -> None:
        self._drop(player)
        hello = post.content
        self._conversations[post.worker].reader = PlayerReader(player.worker, hello.package_version)
        seed = player_seed(self._run.run_seed, self._run.actor_index, player.worker)
        self._log.info(
            "player_connected",
            worker=player.worker,
            package_version=hello.package_version[:40],
            api_version=hello.communication_version[:40],
            seed=seed,
        )
        post.answer(replies.greeting(hello, seed, max(1, self._run.environment_settings.num_areas)))

    def _step(self, post: Post, player: PlayerState, step: PlayerStep) -> None:
        if post.is_answered:
            return
        exchange = Exchange(post, player)
        try:
            found = [(self._runner(part), _request(exchange, player, part)) for part in step.parts]
        except BadPlayerData as error:
            self._conversations[post.worker].refuse(str(error))
            return
        exchange.open_parts = sum(1 for _, request in found if request.agents)
        for runner, request in found:
            runner.add(request)
        self._count(step)
        stats = player.channels.receive(step.side_channel)
        if stats:
            for runner in [runner for runner, _ in found] or list(self._loop):
                runner.add_stats(player.worker, stats)
        if not exchange.open_parts or player.reset_due:
            self._loop.finish(exchange)

    def _runner(self, part: Part) -> BehaviorRunner:
        """Returns the runner for some agents; declares a new behavior id.

        Raises:
            BadPlayerData: Another player has this behavior with other observations or actions.
        """
        form = part.form
        runner = self._loop.find(form.name, form.team)
        if runner is None:
            agents = max(1, len(part.step.decisions.ids))
            runner = self._loop.add(form.spec, form.team, agents)
            self._log.info("behavior_found", behavior=form.behavior_id, agents=agents)
        elif runner.spec != form.spec and (differences := mismatches(runner.spec, form.spec)):
            raise BadPlayerData(
                f"behavior {form.behavior_id} differs from that of the first player: {'; '.join(differences)}; "
                "use the same build for all players of a run"
            )
        return runner

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


def _request(exchange: Exchange, player: PlayerState, part: Part) -> AgentRequest:
    """Returns a message's agents of one behavior id, for the loop."""
    step = part.step
    return AgentRequest(
        exchange, part.form.behavior_id, step.decisions, step.terminals, settings_revision=player.revision
    )


class PlayerState:
    """One player as the stepping thread sees it, across its restarts.

    Args:
        worker: The player's number in this actor.
        channels: Its side channels.

    Attributes:
        worker: The player's number in this actor.
        channels: Its side channels.
        is_running: Its agents may report, because its second message was answered.
        reset_due: Its next exchange is answered with a reset.
        revision: Revision of the environment parameters that were sent to it.
    """

    __slots__ = ("_told", "channels", "is_running", "reset_due", "revision", "worker")

    def __init__(self, worker: int, channels: SideChannels) -> None:
        self.worker = worker
        self.channels = channels
        self.is_running = False
        self.reset_due = False
        self.revision = 0
        self._told = 0

    def begin(self, engine: session_pb2.EngineSettings, assignment: policy_pb2.Assignment, run_seed: int) -> None:
        """Queues everything that a player needs before its first scene."""
        self.channels.begin(engine, assignment, run_seed)
        self._told = assignment.settings_revision
        self.is_running, self.reset_due = True, False

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Queues parameters that have changed, and a reset if they ask for one."""
        if self.is_running:
            self.channels.update(assignment)
            self._told = assignment.settings_revision
            self.reset_due |= assignment.reset == policy_pb2.RESET_MODE_NOW

    def take(self) -> bytes:
        """Returns the side-channel bytes of an answer; episodes that begin after it use these parameters."""
        self.revision = self._told
        return self.channels.take()

    def leave(self) -> None:
        """Marks the player as gone."""
        self.is_running = self.reset_due = False


def write_actions(reply: UnityRLInputProto, behavior_id: str, actions: Actions) -> None:
    """Adds the actions of one behavior to an answer, unless it has no agents: players index each entry.

    Field 1 repeats both kinds as floats, continuous ones first, for players before API version 1.3.

    Args:
        reply: The answer to the player.
        behavior_id: The player's name of the behavior.
        actions: Actions of n agents, in the order in which they asked.
    """
    count = len(actions.log_prob)
    if not count:
        return
    nothing: list[list[int]] = [[]] * count
    continuous = nothing if actions.environment_continuous is None else actions.environment_continuous.tolist()
    discrete = nothing if actions.discrete is None else actions.discrete.tolist()
    values = reply.agent_actions[behavior_id].value
    for axes, choices in zip(continuous, discrete, strict=True):
        values.add(vector_actions_deprecated=axes + choices, continuous_actions=axes, discrete_actions=choices)


class Exchange:
    """One message of a player that is answered once all its agents have actions.

    Args:
        post: The message.
        player: The sender.

    Attributes:
        simulator: The player.
        open_parts: Behaviors whose agents still need actions.
    """

    __slots__ = ("_post", "_reply", "open_parts", "simulator")

    def __init__(self, post: Post, player: PlayerState) -> None:
        self._post = post
        self.simulator = player
        self.open_parts = 0
        self._reply: UnityMessageProto = replies.step()

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the actions of one behavior; returns whether all actions are present."""
        write_actions(self._reply.unity_input.rl_input, behavior_id, actions)
        self.open_parts -= 1
        return not self.open_parts

    def answer(self) -> None:
        """Lets the player continue; sends its side-channel records."""
        if side_channel := self.simulator.take():
            self._reply.unity_input.rl_input.side_channel = side_channel
        self._post.answer(self._reply)

    def answer_reset(self) -> None:
        """Resets the player; actions chosen in the meantime are dropped."""
        self.simulator.reset_due = False
        self._post.answer(replies.reset(self.simulator.take()))
