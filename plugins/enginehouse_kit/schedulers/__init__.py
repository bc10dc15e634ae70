"""The state of a scheduler, and its guard against starvation."""
