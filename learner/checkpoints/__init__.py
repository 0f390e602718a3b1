"""What of a run outlives its process: the run folder, recovery state, checkpoints, and their list."""
