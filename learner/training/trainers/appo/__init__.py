"""Asynchronous PPO: PPO's surrogate on V-trace targets (Espeholt et al. 2018, arXiv:1802.01561)."""
