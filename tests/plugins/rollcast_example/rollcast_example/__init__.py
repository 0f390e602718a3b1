"""What a package may add to Rollcast: trainers, a reward signal, an encoder, a writer of statistics and a callback."""
