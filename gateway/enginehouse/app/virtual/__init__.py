"""A gateway on a virtual clock, in front of engines that its caller plays: for simulations.

::

    virtual_engines   the interface that the caller implements, and what it gets to know of each engine
    virtual_gateway   builds the gateway's decisions: routing, queues, swaps
    virtual_host      one host, whose engines only have states
    virtual_request   one request: its route, its place in a queue, its retries
    virtual_move      how a request changes its engine
    virtual_rescheduling  what the rescheduler looks at and acts on
    settings          changes of the configuration: other values, more instances
"""
