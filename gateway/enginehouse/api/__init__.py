"""What the gateway answers itself, and who may ask: ``pages`` answer the requests that no engine serves.

``admission`` checks the heads of requests, and ``body_memory`` bounds what their bodies take.

``authentication`` finds out who sends a request, by asking authenticators; the one of keys, which also counts requests,
is in the plugin ``callers``. ``cross_origin`` keeps web pages away. ``application`` puts all pages together, ``errors``
are their answers to failures, ``page_facts`` are for pages of plugins, and ``operated`` for those of operators.
``metrics`` collects the metrics.
"""
