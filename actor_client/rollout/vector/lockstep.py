"""Lock-step on the actor: rounds that begin when the learner says so, and end after a fixed number of steps."""

from dataclasses import dataclass

from rollcast.v1 import policy_pb2

from actor_client.policy.actions import ActingPolicy


@dataclass(frozen=True, slots=True)
class LockstepRound:
    """One round of lock-step, as the learner requests it.

    Attributes:
        number: Number of the round, from 1; 0 = wait for a round.
        quota_steps: Steps of each agent in the round.
        version: Version of the acting policy.
        checkpoint: The round after which the last checkpoint was saved; seeds derive from it.
        resets: Environments are reset before the round.
    """

    number: int
    quota_steps: int
    version: int
    checkpoint: int
    resets: bool


class LockstepRounds:
    """Tracks the present round and its progress. Lock-step is off until an assignment has a quota, and then stays on.

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
        """True if the next step belongs to a round that has not begun."""
        return self.is_on and not self._is_playing

    @property
    def checkpoint(self) -> int:
        """The checkpoint from which environment seeds derive; 0 before the first round."""
        return 0 if self._asked is None else self._asked.checkpoint

    def follow(self, assignment: policy_pb2.Assignment | None) -> None:
        """Applies an assignment; a newer one ends the present round at any point."""
        if assignment is self._assignment:
            return
        self._assignment = assignment
        self._is_playing = False
        self._asked = None if assignment is None else self._read(assignment)

    def begin(self, policy: ActingPolicy) -> LockstepRound | None:
        """Begins and returns the round that waits for this policy; None if there is none.

        Args:
            policy: The acting policy, of the learner's present start.
        """
        asked = self._asked
        if asked is None or self._is_playing or not asked.number or asked.version != policy.version:
            return None
        self._is_playing = True
        self._taken_steps = 0
        return asked

    def stepped(self) -> int:
        """Counts a step of all agents; returns the round's number after its last step, otherwise 0."""
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
            number=assignment.lockstep_round if versions else 0,  # a round needs its version
            quota_steps=assignment.lockstep_quota_steps,
            version=versions[0] if versions else 0,
            checkpoint=assignment.lockstep_checkpoint,
            resets=assignment.reset == policy_pb2.RESET_MODE_NOW,
        )
