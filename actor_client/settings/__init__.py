"""Settings of an actor: flags override ROLLCAST_ACTOR_ variables, which override defaults."""

from typing import Final

PREFIX: Final = "ROLLCAST_ACTOR_"
"""Prefix of the variables with settings."""
