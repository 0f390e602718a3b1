"""What is counted of players: plain numbers, each with one thread that writes it."""

from typing import Final

from actor_client.counts import STEP_SECONDS, Tally

BATCH_AGENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ConversationCounts:
    """What is counted in the thread of a player's calls.

    Attributes:
        exchanges: Messages that were answered.
        answer_seconds: From a message of agents to its answer, holds of the learner included.
        player_seconds: From an answer to the player's next message: the player's own time.
        refused: How often the player was refused.
    """

    __slots__ = ("answer_seconds", "exchanges", "player_seconds", "refused")

    def __init__(self) -> None:
        self.exchanges = 0
        self.answer_seconds = Tally(STEP_SECONDS)
        self.player_seconds = Tally(STEP_SECONDS)
        self.refused = 0


class GatewayCounts:
    """What is counted in the stepping thread.

    Attributes:
        batch_agents: Agents of each run of a policy.
        faulty_agents: Agents whose observations or rewards held numbers that were not finite.
        resets: How often a player was told to begin anew.
    """

    __slots__ = ("batch_agents", "faulty_agents", "resets")

    def __init__(self) -> None:
        self.batch_agents = Tally(BATCH_AGENTS)
        self.faulty_agents = 0
        self.resets = 0
