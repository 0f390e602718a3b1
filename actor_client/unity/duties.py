"""What the learner asks of the behaviors of all players of a process, and what that means for the players."""

from collections.abc import Iterable, Mapping, Sequence

import structlog
from rollcast.v1 import policy_pb2

from actor_client.rollout.duty import Duties, Duty
from actor_client.unity.acting import Acting
from actor_client.unity.asking import Exchange
from actor_client.unity.seat import Seat


class CrewDuties:
    """Brings behavior ids their duties.

    An evaluation begins and ends with players that are reset, all of them: a player resets all of its behaviors at
    once. Episodes that run until then count in nothing.
    """

    def __init__(self) -> None:
        self._duties = Duties()
        self._log = structlog.get_logger()

    def of(self, assignment: policy_pb2.Assignment, name: str, team: int) -> Duty:
        """Returns the duty of a behavior id."""
        return self._duties.of(assignment, name, team)

    def begin(
        self, assignment: policy_pb2.Assignment, crew: Mapping[tuple[str, int], Acting], seats: Iterable[Seat]
    ) -> Sequence[Exchange]:
        """Begins what an assignment asks for anew.

        Returns:
            Exchanges that are to be answered with a reset, now.
        """
        changed = [
            (acting, duty)
            for (name, team), acting in crew.items()
            if (duty := self.of(assignment, name, team)) != acting.duty
        ]
        is_reset = any(acting.duty.evaluates or duty.evaluates for acting, duty in changed)
        running = [seat for seat in seats if seat.is_running]
        for seat in running:
            seat.reset_due |= is_reset
        for acting, duty in changed:
            self._log.info("assignment", behavior=acting.spec.name, team=acting.team, **duty.words())
            acting.assign(duty, stale=[seat.worker for seat in running])
        if not is_reset:
            return ()
        return list(dict.fromkeys(asking.exchange for acting in crew.values() for asking in acting.waiting))

    @staticmethod
    def rest(crew: Iterable[Acting]) -> None:
        """Lets those who evaluate wait once all of them are done: until then each acts, for the sake of the others."""
        examined = [acting for acting in crew if acting.duty.evaluates]
        is_done = bool(examined) and all(acting.is_done for acting in examined)
        for acting in examined:
            acting.rests = is_done
