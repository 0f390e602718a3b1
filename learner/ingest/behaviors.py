"""The behaviors of a run: the first declaration defines one, later ones must match."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rollcast.errors import BadSpec, RingTooSmall, SpecMismatch, StepTooLarge, UnknownBehavior
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.specs import BehaviorSpec, mismatches
from rollcast.v1 import spec_pb2

from learner.common.exits import UserError
from learner.ingest.judgements import Judge, Judgements
from learner.ingest.ledger import Ledger
from learner.ingest.queue import TrajectoryQueue
from learner.ingest.round_queue import RoundQueue
from learner.ingest.wakeup import Wakeup
from learner.settings.names import name_problem
from learner.settings.options import RunOptions
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings

NOT_TRAINING: Final = "not_training"
MAX_BEHAVIORS: Final = 256


@dataclass(slots=True, eq=False)
class Behavior:
    """One trained policy of the run.

    Attributes:
        index: names it on the wire.
        name: without a team.
        spec: what it sees and does.
        settings: its block of the run file.
        queue: where its chunks wait.
        max_policy_lag: rows of an open segment older than this many versions force a cut; 0 sets no limit.
        cut_at_swap: open segments are cut at each policy swap.
        training: False once it has no trainer (any more): chunks are then dropped{not_training} on arrival. Use
            `BehaviorTable.stop_training` to end it.
    """

    index: int
    name: str
    spec: BehaviorSpec
    settings: TrainerSettings
    queue: TrajectoryQueue
    max_policy_lag: int
    cut_at_swap: bool
    training: bool = True

    @property
    def time_horizon(self) -> int:
        """The longest segment, in steps."""
        return self.settings.time_horizon

    @property
    def memory_stride(self) -> int:
        """Memory is recorded every so many rows; 0 for a policy without memory."""
        memory = self.settings.network_settings.memory
        return 0 if memory is None else memory.sequence_length

    @property
    def memory_size(self) -> int:
        """Numbers of memory of an agent; 0 for a policy without memory."""
        memory = self.settings.network_settings.memory
        return 0 if memory is None else memory.memory_size


class BehaviorTable:
    """All behaviors of a run, by index and by name. Thread-safe.

    Args:
        options: the run file.
        ledger: its lock makes ending a training one moment with its books.
        judge: says what training a behavior takes.

    Attributes:
        to_service: wakes the service: a pace changed, room appeared.
        to_trainer: wakes the trainer loop: a chunk came, a behavior was declared.
    """

    def __init__(self, options: RunOptions, ledger: Ledger, judge: Judge) -> None:
        self.to_service = Wakeup()
        self.to_trainer = threading.Event()
        self._options = options
        self._ledger = ledger
        self._lock = threading.Lock()
        self._behaviors: list[Behavior] = []
        self._by_name: dict[str, Behavior] = {}
        self._untaken: list[Behavior] = []
        self._restored = 0
        self._judgements = Judgements(judge, self.service)

    @property
    def service(self) -> ServiceSettings:
        """The service's own settings."""
        return self._options.rollcast

    @property
    def restored(self) -> int:
        """How many behaviors came from the checkpoint: only their indices mean the same as before a restart."""
        return self._restored

    def declare(self, spec: BehaviorSpec, team: int, agents: int) -> Behavior:
        """Returns the behavior of a declaration; the first one of the run makes it.

        A declaration that is the first of its behavior is judged, which takes seconds at most; no lock is held meanwhile.

        Args:
            spec: what the actor says it sees and does.
            team: the team of the behavior id; all teams share one behavior.
            agents: how many agents of it act at the same time, over all actors.

        Raises:
            UnknownBehavior: the run file has no such behavior.
            SpecMismatch: another actor declared it differently; both sides are in the metadata.
            StepTooLarge: one step does not fit the largest chunk.
            RingTooSmall: the ring on the training device cannot hold an update and what runs ahead of it.
            Untrainable: an observation has no network, a picture is too small for its encoder, or memory does not
                suffice.
            BadSpec: the name or the team cannot be used.
        """
        if team < 0:
            raise BadSpec(f"team {team} of {spec.name!r} is negative; teams count from 0")
        settings = self._settings_for(spec.name)
        known = self._known(spec)
        self._check_step(spec, settings)  # a known one too: after a restart the run file may allow smaller chunks
        self._check_ring(spec, settings, max(1, agents))
        if known is not None:
            return known
        try:
            behavior = self._judged(spec, settings)
        except Exception:
            self._judgements.forget(spec)
            raise
        self.to_trainer.set()
        return behavior

    def take_new(self) -> list[Behavior]:
        """Returns the behaviors that were declared (or loaded) since the last call; for the trainer loop."""
        with self._lock:
            taken, self._untaken = self._untaken, []
            return taken

    def by_index(self, index: int) -> Behavior | None:
        """Returns the behavior of an index, or None."""
        behaviors = self._behaviors
        return behaviors[index] if 0 <= index < len(behaviors) else None

    def by_name(self, name: str) -> Behavior | None:
        """Returns the behavior of a name without a team, or None."""
        return self._by_name.get(name)

    def all(self) -> tuple[Behavior, ...]:
        """Returns all behaviors in the order of their indices."""
        with self._lock:
            return tuple(self._behaviors)

    def stop_training(self, behavior: Behavior) -> int:
        """Ends the training of a behavior: what waits in its queue, and all that comes, is dropped{not_training}.

        Returns:
            The number of steps that waited.
        """
        with self._ledger.lock:
            behavior.training = False
            steps = sum(item.chunk.rows for item in behavior.queue.drain())
            self._ledger.drop_queued(behavior.name, NOT_TRAINING, steps)
        behavior.queue.touch()
        return steps

    def state_dict(self) -> dict[str, Any]:
        """Returns names and specs (as bytes of their message) in the order of the indices, for a checkpoint."""
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
        """Continues from a checkpoint; indices stay what they were. `take_new` then returns every behavior.

        All are to be trained, also one that was done: its trainer ends it again, unless the run file allows more now.

        Raises:
            UserError: the run file no longer has one of the behaviors.
            BadSpec: a saved spec is damaged.
            ValueError: behaviors have been declared already, or one is there twice.
        """
        with self._lock:
            if self._behaviors:
                raise ValueError("behaviors have been declared already; load the table before the service starts")
            for saved in state["behaviors"]:
                spec = BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(saved["spec"]))
                if spec.name in self._by_name:
                    raise ValueError(f"the behavior {spec.name} is there twice")
                self._add(spec, self._options.settings_for(spec.name))
            self._restored = len(self._behaviors)
        self.to_trainer.set()

    def _known(self, spec: BehaviorSpec) -> Behavior | None:
        """Returns the behavior of a spec; None before its first declaration.

        Raises:
            SpecMismatch: another actor declared it differently.
        """
        behavior = self._by_name.get(spec.name)
        if behavior is not None:
            _check_same(behavior.spec, spec)
        return behavior

    def _judged(self, spec: BehaviorSpec, settings: TrainerSettings) -> Behavior:
        """Adds a behavior if it can be trained beside the others, or returns the one that another actor added meanwhile.

        Raises:
            Untrainable, UnknownBehavior, SpecMismatch: see `declare`.
        """
        found = self._judgements.footprint(spec, settings)
        self._taken_bytes(self.all())  # judges restored ones, so that nothing waits under the lock
        with self._lock:
            known = self._known(spec)
            if known is not None:
                return known
            self._judgements.check(spec, found, self._taken_bytes(self._behaviors))
            if len(self._behaviors) >= MAX_BEHAVIORS:
                raise UnknownBehavior(f"the run has {MAX_BEHAVIORS} behaviors already, the most there may be")
            return self._add(spec, settings)

    def _taken_bytes(self, behaviors: Iterable[Behavior]) -> int:
        return sum(self._judgements.taken_bytes(behavior.spec, behavior.settings) for behavior in behaviors)

    def _add(self, spec: BehaviorSpec, settings: TrainerSettings) -> Behavior:
        behavior = Behavior(
            index=len(self._behaviors),
            name=spec.name,
            spec=spec,
            settings=settings,
            queue=self._make_queue(settings),
            max_policy_lag=max_policy_lag(settings, self.service),
            cut_at_swap=self.service.on_policy == "strict" and settings.traits.on_policy,
        )
        self._behaviors.append(behavior)
        self._by_name[behavior.name] = behavior
        self._untaken.append(behavior)
        return behavior

    def _make_queue(self, settings: TrainerSettings) -> TrajectoryQueue:
        size = self._queue_bytes()
        if self.service.lockstep is None:
            return TrajectoryQueue(size, to_service=self.to_service, to_trainer=self.to_trainer)
        memory = settings.network_settings.memory
        stride = 0 if memory is None else memory.sequence_length
        return RoundQueue(size, memory_stride=stride, to_service=self.to_service, to_trainer=self.to_trainer)

    def _queue_bytes(self) -> int:
        """The share of a behavior in `queue_bytes`; behaviors under default_settings are not known beforehand."""
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
                advice += f", or raise rollcast.max_chunk_bytes in the run file to {need} at least"
            elif limit < MAX_CHUNK_BYTES:
                advice += f" (rollcast.max_chunk_bytes may be {MAX_CHUNK_BYTES} at most)"
            raise StepTooLarge(
                f"one step of {spec.name} needs up to {need} bytes, and a chunk holds at most {limit}: {advice}",
                metadata={"behavior": spec.name, "step_bytes": str(need), "max_chunk_bytes": str(limit)},
            )

    def _check_ring(self, spec: BehaviorSpec, settings: TrainerSettings, agents: int) -> None:
        ring_steps = self.service.device_ring_steps
        if ring_steps is None or settings.traits.replay:
            return  # the trainer makes its ring large enough, or has none
        buffer_size = settings.hyperparameters.buffer_size
        chunk = chunk_steps(spec, self.service)
        need = 2 * buffer_size + agents * settings.time_horizon + chunk
        if ring_steps < need:
            raise RingTooSmall(
                f"{spec.name} needs a ring of {need} steps (2 * buffer_size {buffer_size} + {agents} agents * "
                f"time_horizon {settings.time_horizon} + a chunk of {chunk}), and rollcast.device_ring_steps is "
                f"{ring_steps}: raise it, or lower buffer_size, time_horizon or the number of agents",
                metadata={"behavior": spec.name, "ring_steps": str(ring_steps), "needed_steps": str(need)},
            )


def max_policy_lag(settings: TrainerSettings, service: ServiceSettings) -> int:
    """Returns how many versions may lie between acting and learning; 0 sets no limit, as for replay: all its steps are old."""
    if settings.traits.replay:
        return 0
    if service.max_policy_lag is not None:
        return service.max_policy_lag
    return settings.traits.max_policy_lag


def chunk_steps(spec: BehaviorSpec, service: ServiceSettings) -> int:
    """Returns the steps of a full chunk."""
    return service.max_chunk_steps or -(-service.target_chunk_bytes // spec.step_bytes)


def _check_same(ours: BehaviorSpec, theirs: BehaviorSpec) -> None:
    differences = mismatches(ours, theirs)
    if differences:
        shown = "; ".join(differences)
        raise SpecMismatch(
            f"{ours.name} was declared differently by the first actor of this run: {shown}. Start this actor with the "
            "same environment, or train the new one as another run",
            metadata={"behavior": ours.name, "differences": shown, "run": repr(ours), "actor": repr(theirs)},
        )
