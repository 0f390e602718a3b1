"""Shows a run: on the terminal, as a history, and where it is held up."""
