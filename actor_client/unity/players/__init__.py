"""Player processes: finds, starts, watches, restarts and ends them."""
