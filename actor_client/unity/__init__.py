"""Unity players: the calls of their `Exchange` become rows for the learner, its policies become their actions."""
