"""Player processes: found, started, watched, started again when they fail, ended with the actor."""
