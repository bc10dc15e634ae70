"""What the gateway answers itself, and who may ask: ``pages`` answer the requests that no engine serves.

``admission`` decides who may send what: it asks authenticators who sends a request, and bounds the memory that bodies
take. The authenticator of keys, which also counts requests, is in the plugin ``callers``. ``cross_origin`` keeps web
pages away. ``application`` puts all pages together, ``errors`` are their answers to failures, and ``page_facts`` are
for pages of plugins. ``metrics`` collects the metrics.
"""
