"""Evaluation: who plays how many episodes with which policy, and what came of it. Nothing of it is training."""
