"""Fault injection: the kinds of faults, and the active ones."""
