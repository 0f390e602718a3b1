"""Records agents that appear, ask for actions and disappear at any time, as in a simulator with its own scheduler."""
