"""Reward signals: they compute the trainer's reward for each step."""
