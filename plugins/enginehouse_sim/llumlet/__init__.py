"""Live requests move from one simulated engine to another, keys and values and all, on Llumnix's commands."""
