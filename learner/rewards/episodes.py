"""What an episode brings of each reward signal, from sums over steps: which step was whose is not needed for the mean."""

from __future__ import annotations

from collections.abc import Mapping


class EpisodeRewards:
    """Mean sums of rewards an episode.

    ML-Agents adds up the rewards of each agent until its episode ends. Here the rewards of all steps are added up until
    some episode has ended, and divided by how many have: weighted with their number of episodes, these means have the
    same mean, but for the episodes that run at the beginning and at the end. Steps that were dropped are in neither sum.

    Attributes:
        episodes: that the last means are over.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self._sums: dict[str, float] = {}

    def add(self, sums: Mapping[str, float], ended: int) -> Mapping[str, float]:
        """Adds the steps of an update.

        Args:
            sums: of rewards over these steps, by signal.
            ended: how many episodes ended with one of them.

        Returns:
            Rewards of an episode by signal, over the steps since some episode ended last; nothing if none has now.
        """
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        if not ended:
            return {}
        self.episodes = ended
        means = {name: value / ended for name, value in self._sums.items()}
        self._sums.clear()
        return means
