"""Values that the service side and the trainer side exchange."""
