"""The duration of a step: its load, step models, and profiles of engines."""
