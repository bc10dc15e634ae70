"""Asks a second replica for a stream that is slow to begin."""
