"""Decides where Envoy sends requests.

::

    command         ``enginehouse envoy serve`` and ``enginehouse envoy config``
    serving         the life of all listeners
    authz           external authorization over HTTP: the fast way
    ext_proc        external processing over gRPC: the endpoint picker protocol
    messages        reads and writes the messages of a stream, and reads who sends a request
    access_log      Envoy's access log: the requests whose end it will report, and their ends
    addresses       the literal addresses of engines
    health          gRPC's health service
    certificates    the certificates of both listeners
"""
