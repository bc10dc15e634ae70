"""How long a step takes: its load, step models, and profiles of engines."""
