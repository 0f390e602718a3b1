"""Evaluation: selects actors, episodes and policies, and collects the results. None of it is training."""
