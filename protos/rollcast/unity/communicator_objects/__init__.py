"""The wire of Unity players: the messages of ML-Agents' protocol, for its API versions 1.0 to 1.5."""
