"""Acting in environments that are stepped together, as Gymnasium's vector environments are."""
