"""Stop 9 of a step's way: trainers, which turn experience into new policies."""
