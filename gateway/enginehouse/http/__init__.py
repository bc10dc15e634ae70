"""Bytes of clients become requests, and answers become bytes again.

::

    server              what all connections share; decides who answers a request
    client_connection   a client's connection: its requests come in, and are answered in their order
    inbound             one request on it, and its answer
    admission           who may send what: asks authenticators, bounds the memory that bodies take
    cross_origin        keeps web pages of others away, or lets them read answers (CORS)
    relayed_paths       the requests that engines answer
    page_exchange       lets an ASGI application answer all others
    application         the Starlette application of all pages, and its errors
    health_pages        whether the gateway lives, and takes requests
    guarded_pages       guards the pages that need a key, and leads /upstream/MODEL to its page
    page_facts          what pages of plugins know of their gateway
    uploads             forms that pass to their engine while they arrive
    body_stream         a body that is read piece by piece
    framing             refuses ambiguous request lines and heads, and finds the ends of requests
"""
