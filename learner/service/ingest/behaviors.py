"""Tracks the behaviors of a run: the first declaration defines a behavior, later declarations must match."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rollcast.errors import BadSpec, RingTooSmall, SpecMismatch, StepTooLarge, UnknownBehavior
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.specs import BehaviorSpec, mismatches
from rollcast.v1 import spec_pb2

from learner.link.to_front import Done, Settled
from learner.link.to_trainers import Declared
from learner.service.ingest.ledger import Ledger, LedgerError
from learner.service.ingest.memory_estimates import Estimator, MemoryEstimates
from learner.service.ingest.queue import Send, TrajectoryQueue
from learner.service.ingest.session import ActorSession
from learner.shared.exits import UserError
from learner.shared.settings.names import name_problem
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings

MAX_BEHAVIORS: Final = 256
MAX_CLAIMED_AGENTS: Final = 1024
"""Most agents of a session and behavior that others must reckon with before it has sent steps."""
OPEN_BUFFERS: Final = 8
"""Most updates whose steps the agents of one session may have open."""


@dataclass(slots=True, eq=False)
class Behavior:
    """One trained policy of the run.

    Attributes:
        index: Index on the wire.
        name: Name without a team.
        spec: Observations and actions.
        settings: Trainer settings from the run file.
        queue: Counts the chunks that wait for its trainer.
        max_policy_lag: Versions after which a row of an open segment forces a cut; 0 sets no limit.
        cut_at_swap: Whether open segments are cut at each policy swap.
        training: False if it has no trainer (any more): its chunks are then dropped{not_training} on arrival. Use
            `BehaviorTable.end_training` to end it.
        takes_any_generation: Whether rows that acted under an earlier start of the learner are trained: no step is too old
            for replay. Matches and lock-step rounds, though, belong to one start.
    """

    index: int
    name: str
    spec: BehaviorSpec
    settings: TrainerSettings
    queue: TrajectoryQueue
    max_policy_lag: int
    cut_at_swap: bool
    training: bool = True
    takes_any_generation: bool = False

    @property
    def plays_matches(self) -> bool:
        """True if it has self-play: its behavior ids act only in matches."""
        return self.settings.self_play is not None

    @property
    def time_horizon(self) -> int:
        """Longest segment, in steps."""
        return self.settings.time_horizon

    @property
    def most_open_steps(self) -> int:
        """Most steps that a session may have open, whatever number of agents it claims: what updates can use soon."""
        return _most_open_steps(self.settings)

    def horizon_of(self, agents: int) -> int:
        """Returns the longest segment of a session with so many agents, in steps: that of the run file unless they are very many.

        Raises:
            RingTooSmall: They are too many for any segment.
        """
        most = self.most_open_steps // max(1, agents) - 1
        if most < 1:
            raise RingTooSmall(
                f"{agents} agents of {self.name} in one actor; at most {self.most_open_steps // 2} are allowed with this "
                "buffer_size and time_horizon: raise buffer_size, or start several actors",
                metadata={"behavior": self.name, "agents": str(agents), "max_agents": str(self.most_open_steps // 2)},
            )
        return min(self.time_horizon, most)

    @property
    def memory_stride(self) -> int:
        """Rows between two records of memory; 0 for a policy without memory."""
        return self.settings.memory_stride

    @property
    def memory_size(self) -> int:
        """Number of memory values of an agent; 0 for a policy without memory."""
        memory = self.settings.network_settings.memory
        return 0 if memory is None else memory.memory_size

    @property
    def declared(self) -> Declared:
        """The message that declares it to the trainers."""
        return Declared(
            index=self.index,
            name=self.name,
            spec=self.spec,
            settings=self.settings,
            time_horizon=self.time_horizon,
            memory_size=self.memory_size,
            memory_stride=self.memory_stride,
            max_policy_lag=self.max_policy_lag,
            cut_at_swap=self.cut_at_swap,
            queue_bytes=self.queue.capacity_bytes,
        )


class BehaviorTable:
    """All behaviors of a run, by index and by name. Thread-safe.

    Args:
        options: The run file.
        ledger: The ledger, in which the trainers' results are booked.
        judge: Judges what training a behavior requires.
        send: Sends a message to the trainers.

    Attributes:
        restored: Number of behaviors restored from the checkpoint; only these keep their indices across a restart.
    """

    def __init__(self, options: RunOptions, ledger: Ledger, judge: Estimator, send: Send) -> None:
        self._options = options
        self._ledger = ledger
        self._send = send
        self._lock = threading.Lock()
        self._behaviors: list[Behavior] = []
        self._by_name: dict[str, Behavior] = {}
        self.restored = 0
        self._told: set[str] = set()
        self._estimates = MemoryEstimates(judge, self.service)

    @property
    def service(self) -> ServiceSettings:
        """Settings of the service."""
        return self._options.rollcast

    def declare(self, spec: BehaviorSpec, team: int, agents: int) -> Behavior:
        """Returns the behavior of a declaration; the first declaration of the run creates it.

        A behavior's first declaration is judged, which takes a few seconds at most; no lock is held meanwhile.

        Args:
            spec: Observations and actions that the actor declared.
            team: Team of the behavior id; all teams share one behavior.
            agents: Number of agents of the behavior that act at the same time, over all actors.

        Raises:
            UnknownBehavior: The run file has no such behavior.
            SpecMismatch: Another actor declared it differently; both sides are in the metadata.
            StepTooLarge: One step does not fit the largest chunk.
            RingTooSmall: The ring on the training device cannot hold an update and the experience ahead of it.
            Untrainable: An observation has no network, a picture is too small for its encoder, or memory does not
                suffice.
            BadSpec: The name or the team is invalid.
        """
        if team < 0:
            raise BadSpec(f"team {team} of {spec.name!r} is negative; teams are numbered from 0")
        settings = self._settings_for(spec.name)
        known = self._known(spec)
        self._check_step(spec, settings)  # known behaviors too: after a restart the run file may allow smaller chunks
        self._check_ring(spec, settings, max(1, agents))
        if known is not None:
            return known
        try:
            return self._estimated(spec, settings)
        except Exception:
            self._estimates.forget(spec)
            raise

    def by_index(self, index: int) -> Behavior | None:
        """Returns the behavior of an index, or None."""
        behaviors = self._behaviors
        return behaviors[index] if 0 <= index < len(behaviors) else None

    def lists(self, name: str) -> bool:
        """Returns whether the run file lists a behavior by name."""
        return name in self._options.behaviors

    def undeclared(self, declared: str = "") -> list[str]:
        """Returns the behaviors of the run file that no actor has declared and that were not returned before.

        Args:
            declared: Name of the behavior that an actor declares instead: those with the most similar names are first.
        """
        names = [name for name in self._options.behaviors if name not in self._by_name and name not in self._told]
        self._told.update(names)
        return sorted(names, key=lambda name: -difflib.SequenceMatcher(None, name.lower(), declared.lower()).ratio())

    def by_name(self, name: str) -> Behavior | None:
        """Returns the behavior of a name without a team, or None."""
        return self._by_name.get(name)

    def plays_matches(self, name: str) -> bool:
        """Returns whether a behavior has self-play.

        Raises:
            BadSpec, UnknownBehavior: The run file has no such behavior.
        """
        behavior = self._by_name.get(name)
        return self._settings_for(name).self_play is not None if behavior is None else behavior.plays_matches

    def all(self) -> tuple[Behavior, ...]:
        """Returns all behaviors in the order of their indices."""
        with self._lock:
            return tuple(self._behaviors)

    @property
    def has_ended_training(self) -> bool:
        """True if behaviors exist and none of them is trained any more."""
        behaviors = self.all()
        return bool(behaviors) and not any(behavior.training for behavior in behaviors)

    def unsettled_steps(self, behavior: Behavior) -> int:
        """Returns the steps that count against a trainer's limit: queued, or settled with their updates still owed."""
        return self._ledger.queued(behavior.name) + behavior.queue.pace.owed_steps

    def unsettled_for(self, behavior: Behavior, session: ActorSession) -> int:
        """Returns those of `unsettled_steps` that count against the credit of a session; see `UnsettledSteps.seen_by`."""
        queue = behavior.queue
        seen = queue.unsettled.seen_by(session.session_id, session.principal, queue.pace.ahead_limit_steps)
        return seen + queue.pace.owed_steps

    def settle(self, message: Settled) -> None:
        """Books a trainer's results.

        Raises:
            LedgerError: The books would no longer balance, or the trainer has taken chunks that were never sent;
                nothing has changed then.
        """
        behavior = self._behaviors[message.behavior]
        sent = behavior.queue.sequence
        if message.through > sent:
            raise LedgerError(
                f"the trainer took {message.through} chunks of {behavior.name}, but only {sent} were sent"
            )
        with self._ledger.lock:
            self._ledger.settle(behavior.name, message.trained, message.dropped)
            behavior.queue.unsettled.settle(message.trained + sum(message.dropped.values()))
            behavior.queue.settle(message.through, message.pace)

    def end_training(self, message: Done) -> None:
        """Ends the training of a behavior: later chunks are dropped{not_training} on arrival.

        Steps on their way to the trainers stay queued until the trainers report them dropped.
        """
        with self._ledger.lock:
            self._behaviors[message.behavior].training = False

    def state_dict(self) -> dict[str, Any]:
        """Returns names and specs (as serialized messages) in the order of the indices, for a checkpoint."""
        with self._lock:
            return {
                "behaviors": [
                    {
                        "name": behavior.name,
                        "spec": behavior.spec.to_message().SerializeToString(deterministic=True),
                    }
                    for behavior in self._behaviors
                ]
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from a checkpoint. Indices are kept, and every behavior is declared to the trainers.

        All behaviors are trained, including finished ones: their training ends again unless the run file now allows
        more steps.

        Raises:
            UserError: The run file no longer has one of the behaviors.
            BadSpec, DecodeError: A saved spec is damaged.
            ValueError: Behaviors have already been declared, or one occurs twice.
        """
        with self._lock:
            if self._behaviors:
                raise ValueError("behaviors are already declared; load the table before the service starts")
            for saved in state["behaviors"]:
                spec = BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(saved["spec"]))
                if spec.name in self._by_name:
                    raise ValueError(f"behavior {spec.name} is in the table twice")
                self._add(spec, self._options.settings_for(spec.name))
            self.restored = len(self._behaviors)

    def _known(self, spec: BehaviorSpec) -> Behavior | None:
        """Returns the behavior of a spec; None before its first declaration.

        Raises:
            SpecMismatch: Another actor declared it differently.
        """
        behavior = self._by_name.get(spec.name)
        if behavior is not None:
            _check_same(behavior.spec, spec, self._options.checkpoint_settings.run_id)
        return behavior

    def _estimated(self, spec: BehaviorSpec, settings: TrainerSettings) -> Behavior:
        """Adds a behavior if it can be trained with the others, or returns the one that another actor has added.

        Raises:
            Untrainable, UnknownBehavior, SpecMismatch: See `declare`.
        """
        found = self._estimates.footprint(spec, settings)
        self._taken_bytes(self.all())  # judges restored behaviors, so that nothing waits under the lock
        with self._lock:
            known = self._known(spec)
            if known is not None:
                return known
            self._estimates.check(spec, found, self._taken_bytes(self._behaviors))
            if len(self._behaviors) >= MAX_BEHAVIORS:
                raise UnknownBehavior(f"the run already has {MAX_BEHAVIORS} behaviors, the maximum")
            return self._add(spec, settings)

    def _taken_bytes(self, behaviors: Iterable[Behavior]) -> int:
        return sum(self._estimates.taken_bytes(behavior.spec, behavior.settings) for behavior in behaviors)

    def _add(self, spec: BehaviorSpec, settings: TrainerSettings) -> Behavior:
        behavior = Behavior(
            index=len(self._behaviors),
            name=spec.name,
            spec=spec,
            settings=settings,
            queue=self._make_queue(spec, settings),
            max_policy_lag=max_policy_lag(settings, self.service),
            cut_at_swap=self.service.on_policy == "strict" and settings.traits.on_policy,
            takes_any_generation=settings.traits.replay
            and settings.self_play is None
            and self.service.lockstep is None,
        )
        self._behaviors.append(behavior)
        self._send(behavior.declared)
        self._by_name[behavior.name] = behavior  # visible from now on without the lock: the trainers know it
        return behavior

    def _make_queue(self, spec: BehaviorSpec, settings: TrainerSettings) -> TrajectoryQueue:
        lockstep = self.service.lockstep
        round_actors = 0 if lockstep is None else lockstep.actors
        capacity_bytes = self._queue_bytes()
        # The trainer has unpacked what it has taken, too: its steps count by their unpacked size.
        most_steps = min(_most_open_steps(settings), capacity_bytes // spec.step_bytes)
        return TrajectoryQueue(
            len(self._behaviors), capacity_bytes, self._send, round_actors=round_actors, most_steps=most_steps
        )

    def _queue_bytes(self) -> int:
        """Returns the share of `queue_bytes` per listed behavior; others are not known in advance."""
        share = self.service.queue_bytes // max(1, len(self._options.behaviors))
        return max(share, self.service.max_chunk_bytes)

    def _settings_for(self, name: str) -> TrainerSettings:
        problem = name_problem(name)
        if problem is not None:
            raise BadSpec(f"the behavior name {name!r} {problem}", metadata={"behavior": name})
        try:
            return self._options.settings_for(name)
        except UserError as error:
            known = ", ".join(sorted(self._options.behaviors))
            raise UnknownBehavior(error.message, metadata={"behavior": name, "known": known}) from None

    def _check_step(self, spec: BehaviorSpec, settings: TrainerSettings) -> None:
        memory = settings.network_settings.memory
        memory_bytes = 0 if memory is None else 4 * memory.memory_size
        need, limit = spec.one_step_chunk_bytes + memory_bytes, self.service.max_chunk_bytes
        if need > limit:
            advice = "lower memory_size" if memory_bytes > need // 2 else "send smaller observations"
            if need <= MAX_CHUNK_BYTES:
                advice += f", or raise rollcast.max_chunk_bytes in the run file to at least {need}"
            elif limit < MAX_CHUNK_BYTES:
                advice += f" (rollcast.max_chunk_bytes can be at most {MAX_CHUNK_BYTES})"
            raise StepTooLarge(
                f"one step of {spec.name} needs up to {need} bytes, but a chunk holds at most {limit}: {advice}",
                metadata={"behavior": spec.name, "step_bytes": str(need), "max_chunk_bytes": str(limit)},
            )

    def _check_ring(self, spec: BehaviorSpec, settings: TrainerSettings, agents: int) -> None:
        ring_steps = self.service.device_ring_steps
        if ring_steps is None or settings.traits.replay:
            return  # the trainer makes its ring large enough, or has none
        buffer_size = settings.hyperparameters.buffer_size
        chunk = self.service.full_chunk_steps(spec.step_bytes)
        need = 2 * buffer_size + agents * settings.time_horizon + chunk
        if ring_steps < need:
            raise RingTooSmall(
                f"{spec.name} needs a ring of {need} steps (2 * buffer_size {buffer_size} + {agents} agents * "
                f"time_horizon {settings.time_horizon} + a chunk of {chunk}), but rollcast.device_ring_steps is "
                f"{ring_steps}: raise it, or lower buffer_size, time_horizon or the number of agents",
                metadata={"behavior": spec.name, "ring_steps": str(ring_steps), "needed_steps": str(need)},
            )


def _most_open_steps(settings: TrainerSettings) -> int:
    buffer_size = 0 if settings.traits.replay else settings.hyperparameters.buffer_size
    return max(OPEN_BUFFERS * buffer_size, MAX_CLAIMED_AGENTS * (settings.time_horizon + 1))


def max_policy_lag(settings: TrainerSettings, service: ServiceSettings) -> int:
    """Returns the most versions allowed between acting and learning; 0 sets no limit, as for replay."""
    if settings.traits.replay:
        return 0
    if service.max_policy_lag is not None:
        return service.max_policy_lag
    return settings.traits.max_policy_lag


def _check_same(ours: BehaviorSpec, theirs: BehaviorSpec, run_id: str) -> None:
    differences = mismatches(ours, theirs)
    if differences:
        shown = "; ".join(differences)
        raise SpecMismatch(
            f"{ours.name} was declared differently by the first actor of the run {run_id}: {shown}. A run, resumed or not, has "
            "one kind of environment: start this actor with the same one, or train the new one in a run of its own, by the "
            "learner's --run-id",
            metadata={"behavior": ours.name, "differences": shown, "run": repr(ours), "actor": repr(theirs)},
        )
