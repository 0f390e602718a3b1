"""Environment parameters and the lessons in which they change."""
