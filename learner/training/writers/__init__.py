"""Writes the curves of a run for other programs: TensorBoard, Weights & Biases, and MLflow."""
