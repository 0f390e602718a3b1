"""Acts in environments that are stepped together, such as Gymnasium's vector environments."""
