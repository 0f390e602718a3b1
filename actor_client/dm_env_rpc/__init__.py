"""Actor of the worlds of a dm_env_rpc server."""
