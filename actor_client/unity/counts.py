"""What is counted of players: plain numbers, each with one thread that writes it."""

from actor_client.counts import STEP_SECONDS, Tally


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
