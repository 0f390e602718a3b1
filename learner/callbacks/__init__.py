"""Code of the user's that hears what happens in a run: what it is told, how it is found, and where it runs."""
