"""Decides where Envoy sends requests.

::

    command         ``enginehouse envoy serve`` and ``enginehouse envoy config``
    serving         the life of all listeners
    authz           external authorization over HTTP: the fast way
    ext_proc        external processing over gRPC: the endpoint picker protocol
    messages        what is read from and written to a processing stream
    access_log      learns from Envoy's access log which requests have ended
    open_picks      the requests whose end the access log will report
    senders         who sends a request
    addresses       the literal addresses of engines
    health          gRPC's health service
    certificates    the certificates of both listeners
"""
