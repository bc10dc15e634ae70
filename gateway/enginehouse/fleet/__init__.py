"""Backends and their replicas: live state, health, load figures, and the immutable snapshot that decisions read.

Read ``fleet`` first, which other packages call. It keeps each ``live_backend``, whose ``health`` decides what failures
mean. ``stale_averages`` ages the averages of those without recent requests. ``workers`` is what processes tell each
other of backends.
"""
