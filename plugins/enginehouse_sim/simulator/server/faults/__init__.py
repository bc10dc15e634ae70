"""Fault injection: the kinds of faults, and which are active."""
