"""What is wrong with what a player sent. Imports nothing, for the sake of ports that shall listen at once."""


class BadPlayerData(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A player sent what cannot be used; the text is one line with the behavior or player, the value, the next step."""
