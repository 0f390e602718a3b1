"""Companions: trainers of further models, beside the policy of a behavior and from the same experience."""
