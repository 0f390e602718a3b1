"""Writes the curves of a run for other programs: TensorBoard, and Weights & Biases."""
