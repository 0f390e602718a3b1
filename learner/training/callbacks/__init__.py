"""The user's code that receives events of a run: the events, its loading, and the threads it runs in."""
