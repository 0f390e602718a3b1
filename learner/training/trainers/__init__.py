"""Stop 9 of a step's path: trainers, which turn experience into new policies."""
