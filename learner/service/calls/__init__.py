"""Serves the calls of actors and operators over gRPC."""
