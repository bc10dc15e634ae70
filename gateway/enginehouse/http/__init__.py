"""Bytes of clients become requests, and answers become bytes again.

::

    server              what all connections share; decides who answers a request
    client_connection   a client's connection: its requests come in, and are answered in their order
    inbound             one request on it, and its answer
    relayed_paths       the requests that engines answer
    page_exchange       lets an ASGI application answer all others
    uploads             forms that pass to their engine while they arrive
    body_stream         a body that is read piece by piece
    web_socket          a client's WebSocket
    web_sockets_served  serves it: by an engine, or by an ASGI application
    framing             refuses ambiguous request lines and heads, and finds the ends of requests
    cors                lets pages of other origins read answers
"""
