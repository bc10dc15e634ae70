"""Metrics.

::

    page      GET /metrics, in Prometheus's text format
    families  Prometheus's families of the metrics in telemetry/metric_list.py
    births    the series that are there from the start
    requests  the counters of finished requests
    fleet     backends, replicas and queues
    process   the event loop, plugins, the exporter of traces, the workers
    engines   GET /metrics/engines: the pages of all engines as one
"""
