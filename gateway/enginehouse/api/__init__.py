"""What the gateway answers itself, and who may ask: ``pages`` answer the requests that no engine serves.

``admission`` checks the heads of requests, and ``body_memory`` bounds what their bodies take.

``keys`` finds out who sends a request: by the configuration, by ``kept_keys`` or ``tokens``. ``callers`` are what they
find, with a ``limit_set`` each; ``address_limits`` are those of unknown ones. ``cross_origin`` keeps web pages away.
``application`` puts all pages together, ``errors`` are their answers to failures, ``page_facts`` are for pages of
plugins, and ``operated`` for those of operators.
"""
