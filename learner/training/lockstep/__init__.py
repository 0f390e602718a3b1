"""Lock-step: one barrier over all behaviors, so that a run can be repeated bit by bit."""
