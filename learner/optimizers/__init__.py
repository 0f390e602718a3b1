"""How parameters descend: Adam over flat vectors, and where several learners meet."""
