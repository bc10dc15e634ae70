"""Connects a client's request with the answer of an engine."""
