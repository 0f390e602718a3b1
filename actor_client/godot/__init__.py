"""Godot games: speaks the protocol of the Godot RL Agents plug-in, and starts, watches and restarts builds."""
