"""Version 1 of the wire contract, generated from the `.proto` files in this folder."""
