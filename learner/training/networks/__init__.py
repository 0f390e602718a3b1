"""Networks in torch: encoders, body, heads, normalizer, and the action distributions the losses need."""
