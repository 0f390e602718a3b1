"""Reward signals: what each step is worth to the trainer."""
