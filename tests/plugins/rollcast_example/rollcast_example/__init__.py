"""What a package may add to Rollcast: a trainer, a reward signal, an encoder, a writer of statistics and a callback."""
