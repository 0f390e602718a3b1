"""Actor of Gymnasium environments."""
