"""The V-trace actor-critic (Espeholt et al. 2018, "IMPALA", arXiv:1802.01561)."""
