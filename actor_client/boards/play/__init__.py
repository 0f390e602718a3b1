"""The command `rollcast play`: plays an exported model in a terminal, or as an engine with the USI protocol."""
