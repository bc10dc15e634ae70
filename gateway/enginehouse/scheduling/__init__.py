"""Scheduling: each host's run loop between its scheduler and its engines, and a kit for authors of schedulers."""
