"""What must not change when environments are made anew: the learner and the recorder go by the first ones."""

from dataclasses import dataclass

from rollcast.specs import BehaviorSpec, mismatches

from actor_client.envs.base import EnvBatch


@dataclass(frozen=True, slots=True)
class BatchForm:
    """The form of the first environments.

    Attributes:
        spec: As it was declared.
        num_envs: E.
        masked: Whether there are action masks; None before the first reset, which shows it.
    """

    spec: BehaviorSpec
    num_envs: int
    masked: bool | None = None

    def fault(self, batch: EnvBatch) -> str | None:
        """Returns in one line how environments that were just made differ from the first ones; None if they do not.

        Rows of other spaces would not fit the declared ones.
        """
        found = mismatches(self.spec, batch.spec)
        if batch.num_envs != self.num_envs:
            found.append(f"num_envs: run {self.num_envs}, actor {batch.num_envs}")
        return f"made anew, it differs from the first one: {'; '.join(found)}" if found else None

    def mask_fault(self, batch: EnvBatch) -> str | None:
        """Returns in one line how the masks differ after the first reset; None if they do not.

        Rows whose masks came or went would be learned from with the wrong probabilities.
        """
        masked = batch.action_masks is not None
        if self.masked is None or masked == self.masked:
            return None
        return f"made anew, it {'has' if masked else 'lacks'} action masks, which the first one {_verb(self.masked)}"


def _verb(masked: bool) -> str:
    return "had" if masked else "had not"
