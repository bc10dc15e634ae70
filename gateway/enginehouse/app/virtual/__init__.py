"""A gateway on a virtual clock, in front of engines that its caller simulates.

::

    virtual_engines   the interface that the caller implements, and its description of each engine
    virtual_gateway   builds the gateway's decisions: routing, queues, swaps
    virtual_host      one host, whose engines only have states
    virtual_request   one request: its route, its place in a queue, its retries
    virtual_move      how a request changes its engine
    virtual_rescheduling  the parts that the rescheduler reads and changes
    settings          changes of the configuration: other values, more instances
"""
