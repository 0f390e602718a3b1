"""Side channels: bytes that travel with the exchanges of a player, in addition to observations and actions."""
