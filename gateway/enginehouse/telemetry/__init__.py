"""Telemetry: what is recorded of each request, and what is made of it.

::

    figures    counters and histograms
    decisions  the last routes
    listeners  telling observers
    broadcast  what happens, for whoever watches
    logs       the gateway's own log
    log_ring   the last lines of a log, the gateway's or an engine's
    log_reader several of them, read and followed as one
    timed      waiting for an event for some time
"""
