"""Backends and their replicas: live state, health, load figures, and the immutable snapshot that decisions read.

Read ``fleet`` first; it is the only part that others call.
"""
