"""Moves live streams to other engines on purpose."""
