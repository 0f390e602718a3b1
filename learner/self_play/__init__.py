"""Self-play: past versions of the policies as opponents, matches of actors, and ratings."""
