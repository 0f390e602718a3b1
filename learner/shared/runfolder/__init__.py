"""Everything of a run that outlives its process: the run folder, recovery state, checkpoints, and their list."""
