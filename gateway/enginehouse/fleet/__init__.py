"""Backends and their replicas: live state, health, load figures, and the immutable snapshot that decisions read.

Read ``fleet`` first, which other packages call. It keeps each ``live_backend``, whose ``health`` decides what failures
mean; ``stale_averages`` are of those that nobody has asked lately. ``workers`` is what processes tell each other of
backends.
"""
