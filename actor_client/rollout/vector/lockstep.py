"""Lock-step on the actor: rounds that begin when the learner says so, and end after a fixed number of steps."""

from dataclasses import dataclass

from rollcast.v1 import policy_pb2

from actor_client.policy.actions import ActingPolicy


@dataclass(frozen=True, slots=True)
class LockstepRound:
    """One round of lock-step, as the learner asks for it.

    Attributes:
        number: Of the round, from 1; 0 = wait for one.
        quota_steps: Steps that each agent takes in it.
        version: The policy that acts.
        checkpoint: The round after which the run was saved last; seeds follow from it.
        resets: Environments begin again before it.
    """

    number: int
    quota_steps: int
    version: int
    checkpoint: int
    resets: bool


class LockstepRounds:
    """Which round is played, and how far it is. Off until an assignment asks for a quota; then nothing is free.

    Args:
        behavior: The name, without a team.
        team: The team.
    """

    def __init__(self, behavior: str, team: int) -> None:
        self._behavior = behavior
        self._team = team
        self._assignment: policy_pb2.Assignment | None = None
        self._asked: LockstepRound | None = None
        self._is_playing = False
        self._taken_steps = 0

    @property
    def is_on(self) -> bool:
        """True if the run is in lock-step."""
        return self._asked is not None

    @property
    def is_waiting(self) -> bool:
        """True if the next step is one of a round that has not begun."""
        return self.is_on and not self._is_playing

    @property
    def checkpoint(self) -> int:
        """The checkpoint that seeds of environments follow from; 0 before the first round."""
        return 0 if self._asked is None else self._asked.checkpoint

    def follow(self, assignment: policy_pb2.Assignment | None) -> None:
        """Takes over an assignment: a newer one ends the round that is played, wherever it is."""
        if assignment is self._assignment:
            return
        self._assignment = assignment
        self._is_playing = False
        self._asked = None if assignment is None else self._read(assignment)

    def begin(self, policy: ActingPolicy) -> LockstepRound | None:
        """Begins the round that waits for this policy, and returns it; None if there is none.

        Args:
            policy: What acts, of the learner's present start.
        """
        asked = self._asked
        if asked is None or self._is_playing or not asked.number or asked.version != policy.version:
            return None
        self._is_playing = True
        self._taken_steps = 0
        return asked

    def stepped(self) -> int:
        """Counts a step of all agents; returns the number of the round if that was its last one, else 0."""
        if self._asked is None or not self._is_playing:
            return 0
        self._taken_steps += 1
        if self._taken_steps < self._asked.quota_steps:
            return 0
        number = self._asked.number
        self._is_playing = False
        self._asked = LockstepRound(
            0, self._asked.quota_steps, self._asked.version, self._asked.checkpoint, resets=False
        )
        return number

    def _read(self, assignment: policy_pb2.Assignment) -> LockstepRound | None:
        if not assignment.lockstep_quota_steps:
            return None
        versions = [
            part.lockstep_version
            for part in assignment.behaviors
            if (part.behavior, part.team) == (self._behavior, self._team)
        ]
        return LockstepRound(
            number=assignment.lockstep_round if versions else 0,  # without its version there is no round for it
            quota_steps=assignment.lockstep_quota_steps,
            version=versions[0] if versions else 0,
            checkpoint=assignment.lockstep_checkpoint,
            resets=assignment.reset == policy_pb2.RESET_MODE_NOW,
        )
