"""The gateway's metrics, as Prometheus's library has them.

::

    families  families of the metrics in telemetry/metric_list.py
    births    the series that are there from the start
    requests  the counters of finished requests
    fleet     backends, replicas and queues
    process   the event loop, plugins, the exporter of traces, the workers
    engines   where engines have their own
"""
