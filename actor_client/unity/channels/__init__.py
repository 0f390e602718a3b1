"""Side channels: bytes that ride on the exchanges with a player, beside observations and actions."""
