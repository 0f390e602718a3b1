"""Settings of an actor: flags over ROLLCAST_ACTOR_ variables over defaults, in one frozen value per command."""

from typing import Final

PREFIX: Final = "ROLLCAST_ACTOR_"
"""Of the variables that hold settings."""
