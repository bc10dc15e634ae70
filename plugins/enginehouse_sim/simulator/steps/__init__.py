"""The durations of steps: loads, step models, and profiles of engines."""
