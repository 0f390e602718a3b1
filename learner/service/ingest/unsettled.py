"""Tracks whose steps wait for a trainer, so that no actor's claims or bursts keep the others from training."""

from __future__ import annotations

from collections import Counter, deque


class UnsettledSteps:
    """Unsettled steps of one behavior, by session and by principal.

    Trainers report numbers of steps and not whose they are. They train in the order of arrival but for small differences,
    so the oldest steps count as settled first.

    Attributes:
        total: All unsettled steps.
        members: Sessions of each principal that share the trainer.
    """

    def __init__(self) -> None:
        self.total = 0
        self.members: Counter[str] = Counter()
        self._waiting: deque[tuple[str, str, int]] = deque()
        self._of_session: Counter[str] = Counter()
        self._of_principal: Counter[str] = Counter()

    @property
    def principals(self) -> int:
        """Number of principals that share the trainer, at least one."""
        return max(1, len(self.members))

    def add(self, session_id: str, principal: str, steps: int) -> None:
        """Adds steps that were received."""
        self._waiting.append((session_id, principal, steps))
        self._of_session[session_id] += steps
        self._of_principal[principal] += steps
        self.total += steps

    def settle(self, steps: int) -> None:
        """Removes the oldest steps."""
        while steps and self._waiting:
            session_id, principal, waiting = self._waiting.popleft()
            settled = min(steps, waiting)
            if waiting > settled:
                self._waiting.appendleft((session_id, principal, waiting - settled))
            for counts, key in ((self._of_session, session_id), (self._of_principal, principal)):
                counts[key] -= settled
                if not counts[key]:
                    del counts[key]
            self.total -= settled
            steps -= settled

    def of_principal(self, principal: str) -> int:
        """Returns the unsettled steps of a principal."""
        return self._of_principal[principal]

    def seen_by(self, session_id: str, principal: str, limit: int) -> int:
        """Returns the unsettled steps that count against the credit of a session.

        Above the limit, others count at most with their equal share: of a principal among all principals, and of a session
        among those of its principal. So a session that has less than its own share still gets credit.

        Args:
            session_id: The session.
            principal: Its principal.
            limit: Most steps that may be unsettled.
        """
        if self.total <= limit:
            return self.total
        share = limit // self.principals
        others = sum(min(steps, share) for name, steps in self._of_principal.items() if name != principal)
        own_share = share // max(1, self.members[principal])
        own, mine = self._of_session[session_id], self._of_principal[principal]
        rest = min(mine - own, max(0, share - own_share))
        return own + rest + others

    def has_room(self, principal: str, steps: int, limit: int, most: int) -> bool:
        """Returns whether a principal may add steps; one that has none unsettled always may.

        Args:
            principal: The principal.
            steps: Number of steps.
            limit: Most steps of all principals; above it, none may have more than its equal share.
            most: Most steps of one principal.
        """
        own = self._of_principal[principal]
        if not own:
            return True
        if self.principals > 1 and self.total > limit and own >= limit // self.principals:
            return False
        return own + steps <= most
