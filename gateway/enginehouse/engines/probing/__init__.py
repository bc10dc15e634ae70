"""Probing backends: whether they are healthy, and which models they serve."""
