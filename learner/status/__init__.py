"""The status of a run, put together for people and files."""
