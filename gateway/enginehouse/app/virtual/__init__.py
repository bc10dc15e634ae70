"""A gateway on a virtual clock, in front of engines that its caller simulates.

::

    virtual_gateway  the gateway itself, with a virtual clock, network and launcher
    virtual_engines  the interface that the caller implements, and its description of each engine
    virtual_client   the client's side of one request
"""
