"""Replays: engines on a virtual clock serve the requests of a trace."""
