"""What a package may add to Rollcast: a trainer, a reward signal, an encoder and a writer of statistics."""
