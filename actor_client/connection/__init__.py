"""The actor's side of the wire: one background thread that keeps a session, sends chunks and receives policies."""
